"""Lists what a definition takes from this machine and passes to its server: variables, files, commands, a sign-in.

The trust prompt shows the whole list. In a project's file, anything that looks like a credential or lies outside the
project is grave and needs separate consent, since the author of the file chose both what is taken and where it goes.
The user's own files are listed in the same way without the second prompt.

Pure, apart from resolving symbolic links. Must never read a file or the value of a variable.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerSpec
from toolcrib.model.text import visible
from toolcrib.servers.masking import mask_code, secret_values
from toolcrib.servers.variables import LOOKED_UP, DefinitionPaths, env_file_references, references, spec_references

RevealKind = Literal["variable", "file", "command", "credential"]

_CREDENTIAL_NAME = re.compile(
    r"token|secret|passw|passphrase|passwd|(?:^|_)pass(?:_|$)|(?:^|_)pwd(?:_|$)|api_?key|access_?key|private|credential"
    r"|auth|cookie|session|signature|(?:^|_)pat(?:_|$)|(?:^|_)keys?(?:_|$)|dsn|connection|bearer|jwt|webhook|otp|oauth"
    r"|(?:^|_)(?:database|db|redis|mongo(?:db)?|postgres(?:ql)?|mysql|amqp|broker)_(?:url|uri)$|kubeconfig|(?:^|_)sock$"
    r"|^(?:aws|azure|gcp|google|anthropic|openai|gemini|github|gh|gitlab|npm|pypi|twine|docker|vault|stripe|slack|hf"
    r"|cloudflare|digitalocean|heroku|netlify|vercel|sentry|datadog|dd|toolcrib)_",
    re.IGNORECASE,
)
_CREDENTIAL_FILE = re.compile(
    r"^(?:\.env(?:\..*)?|.*\.env|.*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)|id_[a-z0-9]+|\.?netrc|_netrc|\.npmrc"
    r"|\.pypirc|\.pgpass|\.git-credentials|\.htpasswd|.*credential.*|.*secret.*|.*token.*|.*password.*|known_hosts)$",
    re.IGNORECASE,
)
_SHOUTED = re.compile(r"[A-Z][A-Z0-9_]{2,}")


@dataclass(frozen=True, slots=True)
class ExposedValue:
    """One exposed value. `field` is the key that takes it; `inside` is whether a file lies in the project."""

    kind: RevealKind
    name: str
    field: str
    grave: bool = False
    inside: bool | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape; only files of projects have `inside`."""
        shape: JsonObject = {"kind": self.kind, "name": self.name, "field": self.field, "grave": self.grave}
        return shape if self.inside is None else shape | {"inside": self.inside}


def revealed(spec: ServerSpec, environment: Mapping[str, str]) -> tuple[ExposedValue, ...]:
    """Return everything that starting or reaching this server takes from the machine, once per field."""
    found = (*_variables(spec, environment), *_commands(spec), *_files(spec, environment), *_credentials(spec))
    return tuple(dict.fromkeys(found))


def reveals_gravely(spec: ServerSpec, environment: Mapping[str, str]) -> bool:
    """Return whether trusting this definition needs separate consent for what it takes."""
    return spec.source.project is not None and any(each.grave for each in revealed(spec, environment))


def literal_secrets(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets written in a definition itself; referenced ones are only known once resolved."""
    words = (spec.command or "", *spec.args)
    looks_up = spec.variables in LOOKED_UP
    for value in secret_values(spec.env, spec.headers, words, spec.url):
        if references(value, spec.variables):
            continue
        if not looks_up or not (value.startswith("!") or names_variable(value, environment)):
            yield value
    secret = spec.auth.client_secret if spec.auth is not None else None
    if secret and not references(secret, "toolcrib"):
        yield secret


def is_credential_name(name: str) -> bool:
    """Return whether a variable of this name probably holds a credential."""
    return _CREDENTIAL_NAME.search(name) is not None


def names_credential(value: str) -> bool:
    """Return whether a bare value reads like the name of a credential variable, set or not."""
    return _SHOUTED.fullmatch(value) is not None and is_credential_name(value)


def _variables(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[ExposedValue]:
    of_project = spec.source.project is not None
    for key, reference in (*spec_references(spec), *env_file_references(spec)):
        is_secret = reference.kind == "secret" and reference.name.startswith("secrets.")
        if reference.kind == "variable" or is_secret:
            name = reference.name.removeprefix("secrets.")
            grave = of_project and (is_secret or is_credential_name(name))
            yield ExposedValue("variable", visible(name), visible(key), grave)
        elif reference.kind == "keyring":
            yield ExposedValue("credential", visible(reference.name), visible(key), of_project)
    for key, value in _looked_up(spec):
        if names_variable(value, environment):
            yield ExposedValue("variable", visible(value), visible(key), of_project and is_credential_name(value))


def names_variable(value: str, environment: Mapping[str, str]) -> bool:
    """Return whether a value is the name of a variable."""
    return value in environment or _SHOUTED.fullmatch(value) is not None


def _commands(spec: ServerSpec) -> Iterator[ExposedValue]:
    for key, value in _looked_up(spec):
        if value.startswith("!"):
            shown = visible(mask_code(value[1:].strip()))
            yield ExposedValue("command", shown, visible(key), spec.source.project is not None)


def _files(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[ExposedValue]:
    project = spec.source.project
    for key, path, written in DefinitionPaths(spec, environment).files():
        shown, field = visible(os.path.normpath(written)), visible(key)
        if project is None:
            yield ExposedValue("file", shown, field)
            continue
        inside = _lies_inside(path, project, environment.get("HOME"))
        yield ExposedValue("file", shown, field, not inside or _is_credential_file(path), inside)


def _credentials(spec: ServerSpec) -> Iterator[ExposedValue]:
    if spec.auth is not None:
        named = spec.auth.credential_id
        # A project's definition uses only its own sign-ins, whatever name it chooses.
        name = visible(named) if named and spec.source.project is None else "a sign-in made for this server alone"
        yield ExposedValue("credential", name, "auth")


def _lies_inside(path: Path, project: str, home: str | None) -> bool:
    """Return whether a path resolves into a project; always False for a project that contains the home directory."""
    try:
        root = os.path.realpath(project)
        if home is not None and Path(os.path.realpath(home)).is_relative_to(root):
            return False
        return Path(os.path.realpath(path)).is_relative_to(root)
    except (OSError, ValueError):
        return False


def _is_credential_file(path: Path) -> bool:
    names = (path.name, Path(os.path.realpath(path)).name)
    return ".git" in path.parts or any(_CREDENTIAL_FILE.fullmatch(name) for name in names)


def _looked_up(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Yield values that are commands or variable names by themselves, if the format has such values."""
    if spec.variables in LOOKED_UP:
        yield from ((f"env.{name}", value) for name, value in spec.env.items())
        yield from ((f"headers.{name}", value) for name, value in spec.headers.items())
