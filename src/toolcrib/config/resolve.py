"""From a definition as written to what a server is started with; and, before that, what is missing for it.

`missing` and `origins` only test whether variables exist: listing uses them. `resolve` puts values in, reads what a
definition refers to and runs `!command`; it is for `connect`, and only after the definition is trusted.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.config.expand import SYNTAXES, Field, Reference, fill, references, spec_references, texts
from toolcrib.config.files import read_bytes
from toolcrib.config.masking import mask_command, mask_text, mask_url, mask_value
from toolcrib.config.secrets import SecretCommands
from toolcrib.errors import Unavailable
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ServerSpec

LOOKED_UP = frozenset({"toolcrib", "oh-my-pi"})
"""Syntaxes whose header and env values may be `!command` or the bare name of a variable."""

MAX_INCLUDED = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Resolved:
    """What to start or to call. `problems` name every key that could not be filled."""

    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one value of a definition comes from, for people: the key, the value masked, and the origin in words."""

    key: str
    shown: str
    origin: str


def missing(spec: ServerSpec, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """A problem for each reference that cannot be resolved here. Values are not looked at."""
    found: dict[tuple[str, str], Problem] = {}
    for key, reference in spec_references(spec):
        problem = _unresolved(spec, key, reference, environment)
        if problem is not None:
            found.setdefault((key, reference.text), problem)
    return tuple(found.values())


def origins(spec: ServerSpec, environment: Mapping[str, str]) -> tuple[Origin, ...]:
    """Each value of a definition with its origin; no value of a variable is shown."""
    return tuple(_origins(spec, environment))


async def resolve(
    spec: ServerSpec, environment: Mapping[str, str], commands: SecretCommands, workspace: Path | None = None
) -> Resolved:
    """Fill a trusted definition. `workspace` is where relative paths start for definitions above projects."""
    filler = _Filler(spec, environment, commands, workspace)
    env = await filler.map("env", spec.env)
    headers = await filler.map("headers", spec.headers)
    headers |= {header: filler.text("headers", text, "claude") for header, text in spec.header_env.items()}
    passed = {name: environment[name] for name in spec.env_pass if name in environment}
    included = filler.env_file()
    return Resolved(
        command=filler.optional("command", spec.command),
        args=tuple(filler.text("args", argument) for argument in spec.args),
        env={**passed, **included, **env},
        cwd=filler.cwd(),
        url=filler.optional("url", spec.url),
        headers=headers,
        problems=(*missing(spec, environment), *filler.problems),
    )


def _unresolved(spec: ServerSpec, key: str, reference: Reference, environment: Mapping[str, str]) -> Problem | None:
    match reference.kind:
        case "variable":
            if reference.name in environment or reference.default is not None:
                return None
            reason, hint = (
                f"the variable {reference.name} is not set",
                f"Set {reference.name} and start Toolcrib again.",
            )
        case "secret" if reference.name.startswith("secrets."):
            name = reference.name.removeprefix("secrets.")
            if name in environment:
                return None
            reason, hint = f"the secret {name} is not set", f"Set the variable {name} and start Toolcrib again."
        case "place" | "file":
            return None
        case _:
            reason = f"{reference.text} can only be answered by the tool this file belongs to"
            hint = "Add the server to Toolcrib with a variable or a value in its place."
    message = f'Server "{spec.name}": {reason}, which {key} needs'
    return Problem("server.variable_missing", message, hint, spec.source.file, spec.source.line)


def _origins(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[Origin]:
    allowed = SYNTAXES[spec.variables].fields
    command = iter(mask_command([spec.command, *spec.args] if spec.command is not None else spec.args))
    for kind, key, text in texts(spec):
        # The words of the command come in order: whether one is a secret depends on the one before.
        shown = next(command) if kind in ("command", "args") else _shown(kind, key, text)
        found = references(text, spec.variables) if kind in allowed else ()
        yield Origin(key, shown, _origin(spec, kind, text, found, environment))
    for header, text in spec.header_env.items():
        yield Origin(f"headers.{header}", text, _variables(references(text, "claude"), environment))
    for name in spec.env_pass:
        yield Origin(f"env.{name}", f"${{{name}}}", _variables((Reference("variable", name, name),), environment))


def _shown(kind: Field, key: str, text: str) -> str:
    if kind == "url":
        return mask_url(text)
    return mask_value(key.partition(".")[2], text) if kind in ("env", "headers") else mask_text(text)


def _origin(
    spec: ServerSpec, kind: Field, text: str, found: tuple[Reference, ...], environment: Mapping[str, str]
) -> str:
    if kind in ("env", "headers") and spec.variables in LOOKED_UP:
        if text.startswith("!"):
            return "output of a command, run at connect"
        if text in environment:
            return f"variable {text}"
    where = f"{spec.source.file}:{spec.source.line}" if spec.source.line else spec.source.file
    return _variables(found, environment) if found else f"written in {where}"


def _variables(found: tuple[Reference, ...], environment: Mapping[str, str]) -> str:
    words: list[str] = []
    for reference in found:
        if reference.kind != "variable":
            words.append(f"{reference.kind} {reference.name}")
        elif reference.name in environment:
            words.append(f"variable {reference.name}")
        else:
            words.append(f"variable {reference.name}, {'its default' if reference.default is not None else 'not set'}")
    return "; ".join(words)


class _Filler:
    """Puts the values of one definition in."""

    def __init__(
        self, spec: ServerSpec, environment: Mapping[str, str], commands: SecretCommands, workspace: Path | None
    ) -> None:
        self.problems: list[Problem] = []
        self._spec = spec
        self._environment = environment
        self._commands = commands
        self._file = Path(spec.source.file)
        directory = spec.source.directory or spec.source.project
        self._base = Path(directory) if directory is not None else workspace

    def text(self, kind: Field, text: str, syntax: str | None = None) -> str:
        used = syntax or self._spec.variables
        allowed = syntax is not None or kind in SYNTAXES[used].fields
        return fill(text, used, self._lookup) if allowed else text

    def optional(self, kind: Field, text: str | None) -> str | None:
        return self.text(kind, text) if text is not None else None

    async def map(self, kind: Field, values: Mapping[str, str]) -> dict[str, str]:
        filled: dict[str, str] = {}
        for name, value in values.items():
            if self._spec.variables not in LOOKED_UP:
                filled[name] = self.text(kind, value)
            elif value.startswith("!"):
                output = await self._command(f"{kind}.{name}", value[1:])
                filled |= {name: output} if output is not None else {}
            else:
                filled[name] = self._environment.get(value) or self.text(kind, value)
        return filled

    def cwd(self) -> str | None:
        base = self._base
        written = self.optional("cwd", self._spec.cwd)
        if written is None:
            return str(base) if self._spec.source.project is not None else None
        path = Path(self._environment.get("HOME", "~") + written[1:]) if written.startswith("~/") else Path(written)
        return str(path if path.is_absolute() or base is None else base / path)

    def env_file(self) -> dict[str, str]:
        """The variables of an `envFile`: lines of NAME=value."""
        named = self._spec.env_file
        if named is None:
            return {}
        path = fill(named, self._spec.variables, self._lookup)
        content = self._include("envFile", path, self._base or self._file.parent)
        variables: dict[str, str] = {}
        for line in (content or "").splitlines():
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and name and not name.startswith("#"):
                variables[name.strip()] = value.strip().strip("\"'")
        return variables

    async def _command(self, key: str, command: str) -> str | None:
        try:
            return await self._commands.output(command)
        except Unavailable as failure:
            self._problem("server.secret_missing", f"{key}: {failure.message}")
            return None

    def _lookup(self, reference: Reference) -> str | None:
        match reference.kind:
            case "variable":
                return self._environment.get(reference.name)
            case "secret":
                return self._environment.get(reference.name.removeprefix("secrets."))
            case "place":
                return self._place(reference.name)
            case "file":
                content = self._include(reference.text, reference.name, self._file.parent)
                return content.strip() if content is not None else None
            case _:
                return None

    def _place(self, name: str) -> str | None:
        home = self._environment.get("HOME")
        base = str(self._base) if self._base is not None else None
        root = self._file.parent.parent if self._file.parent.name == ".claude-plugin" else self._file.parent
        places = {
            "workspaceFolder": base,
            "workspaceRoot": base,
            "workspacePath": base,
            "cwd": base,
            "workspaceFolderBasename": Path(base).name if base else None,
            "userHome": home,
            "HOME": home,
            "DESKTOP": f"{home}/Desktop" if home else None,
            "DOCUMENTS": f"{home}/Documents" if home else None,
            "DOWNLOADS": f"{home}/Downloads" if home else None,
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        return places.get(name, str(root))

    def _include(self, key: str, named: str, base: Path) -> str | None:
        home = self._environment.get("HOME", "~")
        path = Path(f"{home}{named[1:]}" if named.startswith("~/") else named)
        content = read_bytes(base / path)
        if not isinstance(content, bytes) or len(content) > MAX_INCLUDED:
            self._problem("server.secret_missing", f"{key}: the file {path} cannot be read")
            return None
        return content.decode("utf-8", "replace")

    def _problem(self, code: str, message: str) -> None:
        source = self._spec.source
        self.problems.append(Problem(code, f'Server "{self._spec.name}": {message}', None, source.file, source.line))
