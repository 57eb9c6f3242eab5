"""Variables in definitions: each app's own syntax, as data.

`references` finds the references in a text, `fill` inserts values, `rewrite` converts to another app's syntax. Values
come from given functions; unresolved references stay literal. `${keyring:NAME}` refers to a secret that the crib stores
and works in every syntax and field.

`DefinitionPaths` computes the paths that a definition refers to; `resolve` reads these files when a server starts,
`exposure` lists them before.

Must never read the environment, a file or a keyring.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.base.named_secrets import SECRET_NAME
from toolcrib.model.servers import ServerSpec

Kind = Literal["variable", "file", "input", "secret", "place", "command", "keyring"]
Field = Literal["command", "args", "env", "cwd", "url", "headers", "auth"]

ALL_FIELDS: frozenset[Field] = frozenset({"command", "args", "env", "cwd", "url", "headers"})
_ENV_AND_HEADERS: frozenset[Field] = frozenset({"env", "headers"})
_URL_AND_HEADERS: frozenset[Field] = frozenset({"url", "headers"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_KEYRING = rf"\$\{{keyring:(?P<keyring>{SECRET_NAME})\}}"
_BRACES = rf"\$\{{(?P<var_b>{_NAME})\}}"
_BRACES_DEFAULT = rf"\$\{{(?P<var>{_NAME})(?::-(?P<default>[^}}]*))?\}}"
_PLAIN = rf"\$(?P<var_p>{_NAME})"
_ENV_COLON = r"\$\{env:(?P<var_e>[^}]+)\}"
_PLACES = r"\$\{(?P<place>workspaceFolder(?:Basename)?|workspaceRoot|userHome|pathSeparator|/|cwd)\}"
_PLUGIN = (
    r"\$\{(?P<place_r>CLAUDE_PLUGIN_ROOT|OMP_PLUGIN_ROOT|extensionPath|workspacePath|__dirname"
    r"|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)\}"
)
_USER_CONFIG = r"\$\{(?P<input_u>user_config\.[^}]+)\}"


@dataclass(frozen=True, slots=True)
class Syntax:
    """How one app writes references, in which fields, and how to write a plain variable (None: unsupported)."""

    pattern: re.Pattern[str]
    fields: frozenset[Field] = ALL_FIELDS
    write: str | None = None
    write_default: str | None = None


@dataclass(frozen=True, slots=True)
class VariableReference:
    """One reference in a text: the name and the default."""

    kind: Kind
    name: str
    text: str
    default: str | None = None

    @property
    def shown(self) -> str:
        """The text for display; its default may be a secret and is left out."""
        return f"${{{self.name}:-…}}" if self.default else self.text


def _syntax(
    *patterns: str,
    fields: frozenset[Field] = ALL_FIELDS,
    write: str | None = None,
    default: str | None = None,
) -> Syntax:
    return Syntax(re.compile("|".join((_KEYRING, *patterns))), fields, write, default)


_WRITE_BRACES, _WRITE_DEFAULT = "${{{name}}}", "${{{name}:-{default}}}"

SYNTAXES: Mapping[str, Syntax] = {
    "none": _syntax(fields=frozenset()),
    "toolcrib": _syntax(_BRACES_DEFAULT, _ENV_COLON, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "pasted": _syntax(_BRACES_DEFAULT, _ENV_COLON, _PLACES, r"\$\{input:(?P<input>[^}]+)\}"),
    "claude": _syntax(_BRACES_DEFAULT, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "claude-plugin": _syntax(_PLUGIN, _USER_CONFIG, _BRACES_DEFAULT),
    "oh-my-pi": _syntax(_BRACES_DEFAULT, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "braces": _syntax(_BRACES, write=_WRITE_BRACES),
    "vscode": _syntax(
        _ENV_COLON,
        _PLACES,
        r"\$\{input:(?P<input>[^}]+)\}",
        r"\$\{command:(?P<command>[^}]+)\}",
        write="${{env:{name}}}",
    ),
    "env-colon": _syntax(_ENV_COLON, write="${{env:{name}}}"),
    "env-colon-env": _syntax(_ENV_COLON, fields=frozenset({"env"}), write="${{env:{name}}}"),
    "copilot": _syntax(_BRACES_DEFAULT, _PLAIN, fields=_ENV_AND_HEADERS, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "factory": _syntax(_BRACES, fields=_ENV_AND_HEADERS, write=_WRITE_BRACES),
    "dollar": _syntax(_BRACES_DEFAULT, _PLAIN, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "dollar-plain": _syntax(_BRACES, _PLAIN, write=_WRITE_BRACES),
    "goose": _syntax(_BRACES, _PLAIN, fields=_URL_AND_HEADERS, write=_WRITE_BRACES),
    "crush": _syntax(r"\$\((?P<command>[^)]*)\)", _BRACES_DEFAULT, _PLAIN, write=_WRITE_BRACES, default=_WRITE_DEFAULT),
    "opencode": _syntax(r"\{env:(?P<var_o>[^}]+)\}", r"\{file:(?P<file>[^}]+)\}", write="{{env:{name}}}"),
    "continue": _syntax(r"\$\{\{\s*(?P<secret>(?:secrets|inputs)\.[^}\s]+)\s*\}\}"),
    "warp": _syntax(rf"\{{\{{(?P<var_w>{_NAME})\}}\}}", write="{{{{{name}}}}}"),
    "librechat": _syntax(rf"\{{\{{(?P<input>{_NAME})\}}\}}", _BRACES, write=_WRITE_BRACES),
    "mcphost": _syntax(rf"\$\{{env://(?P<var_h>{_NAME})(?::-(?P<default>[^}}]*))?\}}", write="${{env://{name}}}"),
    "mcphub": _syntax(r"\$\{cmd:(?P<command>[^}]+)\}", _BRACES_DEFAULT, _ENV_COLON, _PLACES, write=_WRITE_BRACES),
    "gemini-extension": _syntax(_PLUGIN, _BRACES_DEFAULT, _PLAIN),
    "mcpb": _syntax(_PLUGIN, _USER_CONFIG),
}
"""Every interpolation syntax by name; `Dialect.variables` refers to these."""

LOOKED_UP = frozenset({"toolcrib", "oh-my-pi"})
"""Syntaxes whose header and env values may be `!command` or the bare name of a variable."""

Lookup = Callable[[VariableReference], str | None]


def references(text: str, syntax: str) -> tuple[VariableReference, ...]:
    """Return the references in a text, in order."""
    return tuple(_reference(match) for match in SYNTAXES[syntax].pattern.finditer(text))


def syntax_in(field: Field, syntax: str) -> str:
    """Return the syntax that applies in a field: the app's own, or only the crib's."""
    return syntax if field in SYNTAXES[syntax].fields else "none"


def keyring_reference(name: str) -> str:
    """Return the reference to a secret that the crib stores."""
    return f"${{keyring:{name}}}"


def fill(text: str, syntax: str, lookup: Lookup) -> str:
    """Replace every reference that `lookup` resolves or that has a default; others stay."""

    def value(match: re.Match[str]) -> str:
        reference = _reference(match)
        found = lookup(reference)
        return next(each for each in (found, reference.default, reference.text) if each is not None)

    return SYNTAXES[syntax].pattern.sub(value, text)


def rewrite(text: str, old: str, new: str) -> tuple[str, tuple[VariableReference, ...]]:
    """Convert a text to another app's syntax; return it with the references that have no equivalent."""
    target = SYNTAXES[new]
    lost: list[VariableReference] = []

    def written(match: re.Match[str]) -> str:
        reference = _reference(match)
        if reference.kind == "keyring" and new == "toolcrib":
            return reference.text
        form = target.write_default if reference.default is not None else target.write
        if reference.kind != "variable" or form is None:
            lost.append(reference)
            return reference.text
        return form.format(name=reference.name, default=reference.default)

    return SYNTAXES[old].pattern.sub(written, text), tuple(lost)


def texts(spec: ServerSpec) -> Iterator[tuple[Field, str, str]]:
    """Yield every text of a definition that may contain references: its field, the display key, the text."""
    if spec.command is not None:
        yield "command", "command", spec.command
    for index, argument in enumerate(spec.args):
        yield "args", f"args[{index}]", argument
    for name, value in spec.env.items():
        yield "env", f"env.{name}", value
    if spec.cwd is not None:
        yield "cwd", "cwd", spec.cwd
    if spec.url is not None:
        yield "url", "url", spec.url
    for name, value in spec.headers.items():
        yield "headers", f"headers.{name}", value
    if spec.auth is not None and spec.auth.client_secret is not None:
        yield "auth", "auth.clientSecret", spec.auth.client_secret


def spec_references(spec: ServerSpec) -> Iterator[tuple[str, VariableReference]]:
    """Yield every reference of a definition with its key."""
    for field, key, text in texts(spec):
        for reference in references(text, syntax_in(field, spec.variables)):
            yield key, reference
    for header, text in spec.header_env.items():
        for reference in references(text, "claude"):
            yield f"headers.{header}", reference
    for name in spec.env_pass:
        yield f"env.{name}", VariableReference("variable", name, name)


def env_file_references(spec: ServerSpec) -> Iterator[tuple[str, VariableReference]]:
    """Yield every reference in the path of the definition's `envFile`."""
    yield from (("envFile", reference) for reference in references(spec.env_file or "", spec.variables))


_KINDS: Mapping[str, Kind] = {
    "var": "variable",
    "place": "place",
    "file": "file",
    "input": "input",
    "secret": "secret",
    "command": "command",
    "keyring": "keyring",
}
"""The kind of each pattern group; a suffix after an underscore only keeps group names unique."""


def _reference(match: re.Match[str]) -> VariableReference:
    group = match.lastgroup or ""
    default = match["default"] if group in ("var", "default") else None
    group = "var" if group == "default" else group
    return VariableReference(_KINDS[group.partition("_")[0]], match[group].strip(), match[0], default)


class DefinitionPaths:
    """The paths of one definition. `workspace` is the base of relative paths for definitions outside projects."""

    def __init__(self, spec: ServerSpec, environment: Mapping[str, str], workspace: Path | None = None) -> None:
        self._spec = spec
        self._environment = environment
        self._file = Path(spec.source.file)
        directory = spec.source.directory or spec.source.project
        self.base = Path(directory) if directory is not None else workspace

    def place(self, name: str) -> str | None:
        """Return the value of a placeholder like `workspaceFolder`."""
        home = self._environment.get("HOME")
        base = str(self.base) if self.base is not None else None
        root = Path(self._spec.source.root) if self._spec.source.root is not None else self._file.parent
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

    def included(self, reference: VariableReference) -> Path:
        """Return the file whose content replaces a reference."""
        return self._path(reference.name, self._file.parent)

    def env_file(self) -> Path | None:
        """Return the file of variables that a definition names, if any."""
        return self._env_file(self._value_of)

    def files(self) -> Iterator[tuple[str, Path, Path]]:
        """Yield every file read when the server starts: the key that names it, its path, and its path for display.

        The latter shows the names of variables instead of their values.
        """
        for key, reference in spec_references(self._spec):
            if reference.kind == "file":
                yield key, self.included(reference), self.included(reference)
        env_file, written = self.env_file(), self._env_file(self._known_place)
        if env_file is not None and written is not None:
            yield "envFile", env_file, written

    def _env_file(self, lookup: Lookup) -> Path | None:
        named = self._spec.env_file
        if named is None:
            return None
        return self._path(fill(named, self._spec.variables, lookup), self.base or self._file.parent)

    def _value_of(self, reference: VariableReference) -> str | None:
        if reference.kind == "variable":
            return self._environment.get(reference.name)
        return self._known_place(reference)

    def _known_place(self, reference: VariableReference) -> str | None:
        return self.place(reference.name) if reference.kind == "place" else None

    def _path(self, named: str, base: Path) -> Path:
        home = self._environment.get("HOME", "~")
        return base / Path(f"{home}{named[1:]}" if named.startswith("~/") else named)
