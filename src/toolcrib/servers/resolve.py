"""Resolves a definition into what a server is started with, and reports beforehand what is missing.

`missing` and `origins` only test whether variables exist; listings use them. `resolve` fills in values, reads
referenced files and runs `!command`. It is only for connecting to a trusted definition. A project's definition that
takes more than the user consented to is refused, even if only a moved link causes it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread

from toolcrib.base.files.reading import read_bytes
from toolcrib.base.named_secrets import NamedSecrets, SecretRecord
from toolcrib.model.errors import Unavailable
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ResolvedServer, ServerSpec
from toolcrib.servers.exposure import reveals_gravely
from toolcrib.servers.masking import mask_command, mask_text, mask_url, mask_value
from toolcrib.servers.secret_commands import SecretCommands, shell_syntax, start_directory
from toolcrib.servers.variables import (
    LOOKED_UP,
    DefinitionPaths,
    Field,
    VariableReference,
    fill,
    references,
    spec_references,
    syntax_in,
    texts,
)

MAX_INCLUDED = 1024 * 1024
NOTHING_STORED: Mapping[str, SecretRecord] = {}


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The origin of one value for display: the key, the masked value, and a description."""

    key: str
    shown: str
    origin: str


def missing(
    spec: ServerSpec, environment: Mapping[str, str], stored: Mapping[str, SecretRecord] = NOTHING_STORED
) -> tuple[Problem, ...]:
    """Return a problem for each reference that cannot be resolved. Values are not read."""
    found: dict[tuple[str, str], Problem] = {}
    for key, syntax in _shell_commands(spec):
        found[key, syntax] = _needs_shell(spec, key, syntax)
    for key, reference in spec_references(spec):
        problem = (
            _not_stored(spec, key, reference, stored)
            if reference.kind == "keyring"
            else _unresolved_problem(spec, key, reference, environment)
        )
        if problem is not None:
            found.setdefault((key, reference.text), problem)
    return tuple(found.values())


def origins(spec: ServerSpec, environment: Mapping[str, str]) -> tuple[ValueOrigin, ...]:
    """Return each value of a definition with its origin; values of variables are not shown."""
    return tuple(_origins(spec, environment))


async def resolve(
    spec: ServerSpec,
    environment: Mapping[str, str],
    commands: SecretCommands,
    workspace: Path | None = None,
    secrets: NamedSecrets | None = None,
) -> ResolvedServer:
    """Resolve a trusted definition. `workspace` is the base of relative paths for definitions outside projects."""
    if not spec.may_reveal and reveals_gravely(spec, environment):
        return ResolvedServer(problems=(_not_agreed(spec),))
    stored, values = await anyio.to_thread.run_sync(_stored_values, spec, secrets)
    filler = _Filler(spec, environment, commands, workspace, values)
    env = await filler.map("env", spec.env)
    headers = await filler.map("headers", spec.headers)
    headers |= {header: filler.text("headers", text, "claude") for header, text in spec.header_env.items()}
    passed = {name: environment[name] for name in spec.env_pass if name in environment}
    included = filler.env_file()
    secret = filler.optional("auth", spec.auth.client_secret if spec.auth is not None else None)
    return ResolvedServer(
        command=filler.optional("command", spec.command),
        args=tuple(filler.text("args", argument) for argument in spec.args),
        env={**passed, **included, **env},
        cwd=filler.cwd(),
        url=filler.optional("url", spec.url),
        headers=headers,
        auth=None if spec.auth is None else replace(spec.auth, client_secret=secret),
        problems=(*missing(spec, environment, stored), *filler.problems),
    )


def _stored_values(
    spec: ServerSpec, secrets: NamedSecrets | None
) -> tuple[Mapping[str, SecretRecord], Mapping[str, str]]:
    """Return the records of all stored secrets, and the values of those that a definition refers to and may use."""
    names = {reference.name for _, reference in spec_references(spec) if reference.kind == "keyring"}
    if secrets is None or not names:
        return NOTHING_STORED, {}
    records = secrets.records()
    usable = [name for name in names if name in records and records[name].serves(spec.source.project)]
    found = {name: secrets.get(name) for name in usable}
    values = {name: value for name, value in found.items() if value is not None}
    # A record without a value, such as one whose keyring entry was deleted, counts as not stored.
    return {name: record for name, record in records.items() if name not in found or name in values}, values


def _not_stored(
    spec: ServerSpec, key: str, reference: VariableReference, stored: Mapping[str, SecretRecord]
) -> Problem | None:
    record, project = stored.get(reference.name), spec.source.project
    if record is not None and record.serves(project):
        return None
    command = f"toolcrib mcp secrets set {reference.name}"
    reason = (
        f"the secret {reference.name} is not stored"
        if record is None
        else (f"the secret {reference.name} was not stored for this project")
    )
    hint = f"Run `{command}`." if project is None else f"Run `{command} --project` in the project."
    if record is not None:
        hint = "Store one under another name: `toolcrib mcp secrets set NAME --project`."
    message = f'Server "{spec.name}": {reason}, which {key} needs'
    return Problem("server.secret_missing", message, hint, spec.source.file, spec.source.line)


def _not_agreed(spec: ServerSpec) -> Problem:
    message = f'Server "{spec.name}" takes credentials or files that you have not agreed to pass on'
    hint = f"Review it, then run `toolcrib mcp trust {spec.alias or spec.name}`."
    return Problem("server.reveals_secrets", message, hint, spec.source.file, spec.source.line)


def _shell_commands(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Yield the key of each `!command` that only a shell could run, with the part that needs it."""
    if spec.variables in LOOKED_UP:
        for kind, values in (("env", spec.env), ("headers", spec.headers)):
            for name, value in values.items():
                syntax = shell_syntax(value[1:]) if value.startswith("!") else None
                if syntax is not None:
                    yield f"{kind}.{name}", syntax


def _needs_shell(spec: ServerSpec, key: str, syntax: str) -> Problem:
    message = f'Server "{spec.name}": the command of {key} uses shell syntax ("{syntax}"), but runs without a shell'
    hint = "Put it in a script and name that, or write `!sh -c '…'`."
    return Problem("server.secret_missing", message, hint, spec.source.file, spec.source.line)


def _unresolved_problem(
    spec: ServerSpec, key: str, reference: VariableReference, environment: Mapping[str, str]
) -> Problem | None:
    match reference.kind:
        case "variable":
            if reference.name in environment or reference.default is not None:
                return None
            reason, hint = (
                f"the variable {reference.name} is not set",
                f"Set {reference.name} and restart Toolcrib.",
            )
        case "secret" if reference.name.startswith("secrets."):
            name = reference.name.removeprefix("secrets.")
            if name in environment:
                return None
            reason, hint = f"the secret {name} is not set", f"Set the variable {name} and restart Toolcrib."
        case "place" | "file":
            return None
        case _:
            reason = f"{reference.text} can only be resolved by the app this file belongs to"
            hint = "Add the server to Toolcrib with a variable or a value instead."
    message = f'Server "{spec.name}": {reason}, which {key} needs'
    return Problem("server.variable_missing", message, hint, spec.source.file, spec.source.line)


def _origins(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[ValueOrigin]:
    command = iter(mask_command([spec.command, *spec.args] if spec.command is not None else spec.args))
    for kind, key, text in texts(spec):
        # Words of the command come in order: whether one is a secret depends on the one before.
        shown = next(command) if kind in ("command", "args") else _mask_value(kind, key, text)
        found = references(text, syntax_in(kind, spec.variables))
        yield ValueOrigin(key, shown, _origin(spec, kind, text, found, environment))
    for header, text in spec.header_env.items():
        yield ValueOrigin(f"headers.{header}", text, _variables(references(text, "claude"), environment))
    for name in spec.env_pass:
        yield ValueOrigin(
            f"env.{name}", f"${{{name}}}", _variables((VariableReference("variable", name, name),), environment)
        )


def _mask_value(kind: Field, key: str, text: str) -> str:
    if kind == "url":
        return mask_url(text)
    return mask_value(key.partition(".")[2], text) if kind in ("env", "headers", "auth") else mask_text(text)


def _origin(
    spec: ServerSpec, kind: Field, text: str, found: tuple[VariableReference, ...], environment: Mapping[str, str]
) -> str:
    if kind in ("env", "headers") and spec.variables in LOOKED_UP:
        if text.startswith("!"):
            return "output of a command, run at connect"
        if text in environment:
            return f"variable {text}"
    where = f"{spec.source.file}:{spec.source.line}" if spec.source.line else spec.source.file
    return _variables(found, environment) if found else f"written in {where}"


def _variables(found: tuple[VariableReference, ...], environment: Mapping[str, str]) -> str:
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
    """Fills in the values of one definition."""

    def __init__(
        self,
        spec: ServerSpec,
        environment: Mapping[str, str],
        commands: SecretCommands,
        workspace: Path | None,
        secrets: Mapping[str, str],
    ) -> None:
        self._secrets = secrets
        self.problems: list[Problem] = []
        self._spec = spec
        self._environment = environment
        self._commands = commands
        self._located = DefinitionPaths(spec, environment, workspace)

    def text(self, kind: Field, text: str, syntax: str | None = None) -> str:
        return fill(text, syntax or syntax_in(kind, self._spec.variables), self._lookup)

    def optional(self, kind: Field, text: str | None) -> str | None:
        return self.text(kind, text) if text is not None else None

    async def map(self, kind: Field, values: Mapping[str, str]) -> dict[str, str]:
        filled: dict[str, str] = {}
        for name, value in values.items():
            if self._spec.variables not in LOOKED_UP:
                filled[name] = self.text(kind, value)
            elif value.startswith("!"):
                if shell_syntax(value[1:]) is not None:
                    continue  # `missing` reports it
                output = await self._command(f"{kind}.{name}", value[1:])
                filled |= {name: output} if output is not None else {}
            else:
                filled[name] = self._environment.get(value) or self.text(kind, value)
        return filled

    def cwd(self) -> str:
        """Return the directory to start in: never the crib's own working directory, which may be a repository."""
        base = self._located.base
        outside = start_directory(self._environment)
        written = self.optional("cwd", self._spec.cwd)
        if written is None:
            return str(base if base is not None and self._spec.source.project is not None else outside)
        path = Path(self._environment.get("HOME", "~") + written[1:]) if written.startswith("~/") else Path(written)
        return str((base or outside) / path)

    def env_file(self) -> dict[str, str]:
        """Return the variables of an `envFile`: lines of NAME=value."""
        path = self._located.env_file()
        if path is None:
            return {}
        content = self._include("envFile", path)
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

    def _lookup(self, reference: VariableReference) -> str | None:
        match reference.kind:
            case "variable":
                return self._environment.get(reference.name)
            case "secret":
                return self._environment.get(reference.name.removeprefix("secrets."))
            case "keyring":
                return self._secrets.get(reference.name)
            case "place":
                return self._located.place(reference.name)
            case "file":
                content = self._include(reference.text, self._located.included(reference))
                return content.strip() if content is not None else None
            case _:
                return None

    def _include(self, key: str, path: Path) -> str | None:
        content = read_bytes(Path(os.path.realpath(path)))
        if not isinstance(content, bytes) or len(content) > MAX_INCLUDED:
            self._problem("server.secret_missing", f"{key}: the file {path} cannot be read")
            return None
        return content.decode("utf-8", "replace")

    def _problem(self, code: str, message: str) -> None:
        source = self._spec.source
        self.problems.append(Problem(code, f'Server "{self._spec.name}": {message}', None, source.file, source.line))
