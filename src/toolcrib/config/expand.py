"""Variables in definitions: each client's own syntax, as data.

`references` finds what a text refers to, `fill` puts values in, `rewrite` says the same in another client's syntax.
Values come from functions that are given; nothing here reads the environment, a file or a keyring. What cannot be
resolved stays literal.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from toolcrib.model.servers import ServerSpec

Kind = Literal["variable", "file", "input", "secret", "place", "command"]
Field = Literal["command", "args", "env", "cwd", "url", "headers"]

ALL_FIELDS: frozenset[Field] = frozenset({"command", "args", "env", "cwd", "url", "headers"})
_ENV_AND_HEADERS: frozenset[Field] = frozenset({"env", "headers"})
_URL_AND_HEADERS: frozenset[Field] = frozenset({"url", "headers"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
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
    """How one client writes references, in which fields, and how a plain variable is written (None: it cannot be)."""

    pattern: re.Pattern[str] | None
    fields: frozenset[Field] = ALL_FIELDS
    write: str | None = None
    write_default: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference in a text: what it names and the default it gives."""

    kind: Kind
    name: str
    text: str
    default: str | None = None

    @property
    def shown(self) -> str:
        """The text for people; its default may be a secret."""
        return f"${{{self.name}:-…}}" if self.default else self.text


def _syntax(
    *patterns: str,
    fields: frozenset[Field] = ALL_FIELDS,
    write: str | None = None,
    default: str | None = None,
) -> Syntax:
    return Syntax(re.compile("|".join(patterns)), fields, write, default)


_WRITE_BRACES, _WRITE_DEFAULT = "${{{name}}}", "${{{name}:-{default}}}"

SYNTAXES: Mapping[str, Syntax] = {
    "none": Syntax(None),
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
    "gemini-extension": _syntax(_PLUGIN, _BRACES_DEFAULT, _PLAIN),
    "mcpb": _syntax(_PLUGIN, _USER_CONFIG),
}
"""Every interpolation syntax by name; `Dialect.variables` refers to these."""

Lookup = Callable[[Reference], str | None]


def references(text: str, syntax: str) -> tuple[Reference, ...]:
    """What a text refers to, in order."""
    pattern = SYNTAXES[syntax].pattern
    return tuple(_reference(match) for match in pattern.finditer(text)) if pattern is not None else ()


def fill(text: str, syntax: str, lookup: Lookup) -> str:
    """The text with every reference replaced that `lookup` knows or that has a default; the others stay."""
    pattern = SYNTAXES[syntax].pattern
    if pattern is None:
        return text

    def value(match: re.Match[str]) -> str:
        reference = _reference(match)
        found = lookup(reference)
        return next(each for each in (found, reference.default, reference.text) if each is not None)

    return pattern.sub(value, text)


def rewrite(text: str, old: str, new: str) -> tuple[str, tuple[Reference, ...]]:
    """The text in another client's syntax, and the references that it cannot express; those stay as they were."""
    target = SYNTAXES[new]
    lost: list[Reference] = []

    def written(match: re.Match[str]) -> str:
        reference = _reference(match)
        form = target.write_default if reference.default is not None else target.write
        if reference.kind != "variable" or form is None:
            lost.append(reference)
            return reference.text
        return form.format(name=reference.name, default=reference.default)

    pattern = SYNTAXES[old].pattern
    return (pattern.sub(written, text) if pattern is not None else text), tuple(lost)


def texts(spec: ServerSpec) -> Iterator[tuple[Field, str, str]]:
    """Every text of a definition in which a reference may stand: its field, the key for people, the text."""
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


def spec_references(spec: ServerSpec) -> Iterator[tuple[str, Reference]]:
    """Every reference of a definition with the key it stands in."""
    allowed = SYNTAXES[spec.variables].fields
    for field, key, text in texts(spec):
        if field in allowed:
            for reference in references(text, spec.variables):
                yield key, reference
    for header, text in spec.header_env.items():
        for reference in references(text, "claude"):
            yield f"headers.{header}", reference
    for name in spec.env_pass:
        yield f"env.{name}", Reference("variable", name, name)


_KINDS: Mapping[str, Kind] = {
    "var": "variable",
    "place": "place",
    "file": "file",
    "input": "input",
    "secret": "secret",
    "command": "command",
}
"""The kind that a group of a pattern stands for; what follows an underscore only keeps group names apart."""


def _reference(match: re.Match[str]) -> Reference:
    group = match.lastgroup or ""
    default = match["default"] if group in ("var", "default") else None
    group = "var" if group == "default" else group
    return Reference(_KINDS[group.partition("_")[0]], match[group].strip(), match[0], default)
