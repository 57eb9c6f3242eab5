"""The registry's `server.json`: the ways to run a server, what each needs from the user, and the resulting definition.

A package becomes the command that runs it, a remote becomes its address. Arguments, variables and headers come from the
user's values, the publisher's defaults, or, if they are required, from environment variables of the same name. Nothing
is looked up or installed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_RUNNERS = frozenset({"npx", "uvx", "docker", "podman", "dnx"})
"""Programs that a publisher may choose; for others, the usual one of the package's type is used."""

_IDENTIFIERS: Mapping[str, re.Pattern[str]] = {
    "npm": re.compile(r"(?:@[A-Za-z0-9_~][\w.~-]*/)?[A-Za-z0-9_~][\w.~-]*", re.ASCII),
    "pypi": re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w.,-]+\])?", re.ASCII),
    "oci": re.compile(r"[A-Za-z0-9][\w.:/@-]*", re.ASCII),
    "docker": re.compile(r"[A-Za-z0-9][\w.:/@-]*", re.ASCII),
    "nuget": re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII),
}
"""Names of packages. Anything else could be an option of the runner, or an address from which it loads code."""
_VERSION = re.compile(r"(?!latest$)(?!(?:.*\.)?[xX](?:\.|$))[A-Za-z0-9][\w.+!-]*", re.ASCII)
_USUAL_DOMAINS = {"npm": "npmjs", "pypi": "pypi", "nuget": "nuget"}
"""The domain, without its ending, of the registry that the runner of a package type uses."""
_BASE_URL = re.compile(r"https?://([A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?)(?:/|$)")
_REMOTE_TYPES = frozenset({"streamable-http", "sse", "http", "streamable"})

InputKind = Literal["argument", "variable", "header", "value"]
InputValues = Mapping[str, Sequence[str]]
"""The user's values by input; an input that can be repeated has several."""
NO_VALUES: InputValues = {}


@dataclass(frozen=True, slots=True)
class PublishedInput:
    """A value that the user can set: an argument, an environment variable, a header, or a part of one (`value`)."""

    name: str
    kind: InputKind
    description: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    secret: bool = False
    repeated: bool = False

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "required": self.required,
            "secret": self.secret,
            "repeated": self.repeated,
            "choices": list(self.choices),
        }
        return shape if self.default is None else shape | {"default": self.default}


@dataclass(frozen=True, slots=True)
class InstallOption:
    """One way to run a server. `id` is `remote` or the type of the package, numbered if there are several."""

    id: str
    kind: str
    identifier: str
    version: str = ""
    transport: str = "stdio"
    sha256: str | None = None
    inputs: tuple[PublishedInput, ...] = ()
    published: JsonObject = field(default_factory=dict[str, Json], repr=False)

    @property
    def is_remote(self) -> bool:
        """Whether the server runs elsewhere."""
        return self.kind == "remote"

    @property
    def is_served(self) -> bool:
        """Whether the package listens on a URL, so that the user has to start it."""
        return not self.is_remote and self.transport != "stdio"

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {
            "id": self.id,
            "kind": self.kind,
            "identifier": self.identifier,
            "version": self.version,
            "transport": self.transport,
            "inputs": [each.to_json() for each in self.inputs],
        }
        return shape if self.sha256 is None else shape | {"sha256": self.sha256}


def install_options(document: Json) -> tuple[InstallOption, ...]:
    """Return the ways to run the server of a `server.json`: its packages, then its remotes."""
    packages = [(package_kind(each), each) for each in objects(at(document, "packages"))]
    remotes = [("remote", each) for each in objects(at(document, "remotes"))]
    seen: dict[str, int] = {}
    options: list[InstallOption] = []
    for kind, published in (*packages, *remotes):
        seen[kind] = seen.get(kind, 0) + 1
        id = kind if seen[kind] == 1 else f"{kind}-{seen[kind]}"
        options.append(_remote_option(id, published) if kind == "remote" else _package_option(id, kind, published))
    return tuple(options)


def option_entry(option: InstallOption, values: InputValues = NO_VALUES) -> JsonObject:
    """Return the definition for our own file. Raises `registry.value` for a value that is not one of the choices."""
    published = option.published
    entry = remote_entry(published, values) if option.is_remote else package_entry(published, values)
    return entry | {"type": "sse" if entry["type"] == "sse" else "http"} if "url" in entry else entry


def option_fault(option: InstallOption) -> str | None:
    """Return why an option must not be run, or None.

    What is refused breaks the schema in a way that could run something else than what is published and reviewed.
    """
    published = option.published
    if option.is_remote:
        return (
            None if option.transport in _REMOTE_TYPES else f"its transport {option.transport!r} is not one of a remote"
        )
    names = _IDENTIFIERS.get(option.kind)
    if names is not None and names.fullmatch(option.identifier) is None:
        return f"its identifier {option.identifier!r} is not the name of a package of the type {option.kind}"
    if option.version and names is not None and _VERSION.fullmatch(option.version) is None:
        return f"its version {option.version!r} is not a specific version"
    if option.sha256 is not None and names is not None:
        return f"it has a digest, which cannot be verified for packages of the type {option.kind}"
    host = _base_host(published)
    if not host and _member(published, "registryBaseUrl"):
        return "the address of its package registry is invalid"
    usual = _USUAL_DOMAINS.get(option.kind)
    if host and usual is not None and host.split(".")[-2:][0] != usual:
        return f"it is in the package registry {host}, which {option.kind} packages are not installed from"
    listed = [*objects(_member(published, "runtimeArguments")), *objects(_member(published, "packageArguments"))]
    if any(as_text(item.get("name")) is None for item in listed if item.get("type") == "named"):
        return "a named argument has no name"
    positional = [item for item in listed if item.get("type") == "positional"]
    if not all(any(_member(item, key) for key in ("value", "default", "valueHint")) for item in positional):
        return "a positional argument has neither a value nor a hint"
    return None


def remote_entry(remote: JsonObject, values: InputValues = NO_VALUES) -> JsonObject:
    """Return the definition of a remote, or of a package that listens on a URL."""
    url = as_text(remote.get("url"))
    raw: JsonObject = {
        "type": remote.get("type") or remote.get("transport_type") or "http",
        "url": _fill_variables(url, remote, values) if url is not None else remote.get("url"),
    }
    headers = _named_values(remote.get("headers"), values)
    return raw | {"headers": headers} if headers else raw


def package_entry(package: JsonObject, values: InputValues = NO_VALUES) -> JsonObject:
    """Return the definition that runs a package, with its type and identifier alone if there is no known runner."""
    kind, identifier = package_kind(package), package_identifier(package)
    if transport_url(package) is not None:
        transport = as_object(package.get("transport")) or {}
        return remote_entry({**transport, "variables": _named_in_url(package, transport)}, values)
    if kind in ("oci", "docker") and not _has_host(identifier) and (host := _base_host(package)):
        identifier = f"{host}/{identifier}"
    launch = _launch(kind, identifier, str(package.get("version") or ""))
    if launch is None:
        return {"registryType": kind, "identifier": identifier}
    command, before, after = launch
    runtime = _arguments(_member(package, "runtimeArguments"), values)
    own = _arguments(_member(package, "packageArguments"), values)
    env = _named_values(_member(package, "environmentVariables"), values)
    hint = str(_member(package, "runtimeHint") or command)
    if command == "docker":
        # A container sees only the variables that are passed on by name.
        named = [name for name in env if not any(name in word for word in runtime)]
        runtime = [*runtime, *(word for name in named for word in ("-e", name))]
    if command == "dnx" and own:
        own = ["--", *own]
    command = hint if hint in _RUNNERS else command
    raw: JsonObject = {"command": command, "args": [*before, *runtime, *after, *own]}
    return raw | {"env": env} if env else raw


def _base_host(package: JsonObject) -> str:
    """Return the host of the registry that a package is in, or an empty text."""
    found = _BASE_URL.match(as_text(_member(package, "registryBaseUrl")) or "")
    return found[1].lower() if found is not None else ""


def _has_host(image: str) -> bool:
    """Return whether the name of an image begins with the host of its registry."""
    first, slash, _ = image.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _named_in_url(package: JsonObject, transport: JsonObject) -> JsonObject:
    """Return what a package's URL can refer to: its arguments by name or hint, and its variables."""
    members = ("runtimeArguments", "packageArguments", "environmentVariables")
    found: JsonObject = {}
    for item in (each for name in members for each in objects(_member(package, name))):
        for key in (item.get("name"), item.get("valueHint"), _label(item)):
            if isinstance(key, str):
                found.setdefault(key, {**item, "name": _label(item)})
    return {**found, **(as_object(transport.get("variables")) or {})}


def package_arguments(package: JsonObject, values: InputValues) -> tuple[list[str], JsonObject]:
    """Return the arguments and variables that a bundle's own command gets in addition."""
    own = _arguments(_member(package, "packageArguments"), values)
    return own, _named_values(_member(package, "environmentVariables"), values)


def package_kind(package: JsonObject) -> str:
    """Return the type of a package, such as `npm`."""
    return str(package.get("registryType") or package.get("registry_type") or package.get("registry_name") or "")


def package_identifier(package: JsonObject) -> str:
    """Return the name of a package, or the address of its file."""
    return str(package.get("identifier") or package.get("name") or "")


def transport_url(package: JsonObject) -> str | None:
    """Return the URL of a package that serves HTTP instead of standard input and output."""
    kind = as_text(at(package, "transport", "type")) or "stdio"
    return as_text(at(package, "transport", "url")) if kind != "stdio" else None


def objects(value: Json) -> list[JsonObject]:
    """Return the objects of a list."""
    return [item for listed in as_list(value) or () if (item := as_object(listed)) is not None]


def variable_reference(name: str) -> str:
    """Return a reference to the environment variable for an input."""
    return f"${{{_UNSAFE.sub('_', name).strip('_') or 'VALUE'}}}"


def _remote_option(id: str, remote: JsonObject) -> InstallOption:
    transport = str(remote.get("type") or remote.get("transport_type") or "http")
    inputs = [*_variables(remote), *_inputs(remote.get("headers"), "header")]
    return InstallOption(id, "remote", str(remote.get("url") or ""), "", transport, None, _unique(inputs), remote)


def _package_option(id: str, kind: str, package: JsonObject) -> InstallOption:
    transport = as_object(package.get("transport")) or {}
    inputs = [
        *_inputs(_member(package, "runtimeArguments"), "argument"),
        *_inputs(_member(package, "packageArguments"), "argument"),
        *_inputs(_member(package, "environmentVariables"), "variable"),
        *_variables(transport),
        *_inputs(transport.get("headers"), "header"),
    ]
    return InstallOption(
        id,
        kind,
        package_identifier(package),
        str(package.get("version") or ""),
        str(transport.get("type") or "stdio"),
        as_text(package.get("fileSha256")) or as_text(package.get("file_sha256")),
        _unique(inputs),
        package,
    )


def _member(package: JsonObject, name: str) -> Json:
    """Return a member in the spelling of either generation of the schema."""
    old = re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)
    return package.get(name) or package.get(old)


def _inputs(listed: Json, kind: InputKind) -> Iterator[PublishedInput]:
    for item in objects(listed):
        if item.get("value") is None:
            yield _input(_label(item), kind, item)
        else:
            yield from _variables(item)


def _variables(item: JsonObject) -> Iterator[PublishedInput]:
    for name, declared in (as_object(item.get("variables")) or {}).items():
        known = as_object(declared) or {}
        if known.get("value") is None:
            yield _input(name, "value", known)


def _input(name: str, kind: InputKind, item: JsonObject) -> PublishedInput:
    default = item.get("default")
    return PublishedInput(
        name,
        kind,
        str(item.get("description") or ""),
        str(default) if default is not None else None,
        tuple(str(each) for each in as_list(item.get("choices")) or ()),
        _is_required(item),
        bool(item.get("isSecret") or item.get("is_secret")),
        bool(item.get("isRepeated") or item.get("is_repeated")),
    )


def _unique(inputs: Sequence[PublishedInput]) -> tuple[PublishedInput, ...]:
    return tuple({each.name: each for each in reversed(inputs)}.values())[::-1]


def _label(item: JsonObject) -> str:
    """Return the name of an input for the user: without dashes, so that it can be typed as `NAME=VALUE`."""
    name = as_text(item.get("name")) or as_text(item.get("valueHint")) or as_text(item.get("value_hint"))
    return (name or "argument").lstrip("-") or "argument"


def _is_required(item: JsonObject) -> bool:
    return bool(item.get("isRequired") or item.get("is_required"))


def _launch(kind: str, identifier: str, version: str) -> tuple[str, list[str], list[str]] | None:
    pinned = version and version != "latest"
    match kind:
        case "npm":
            return "npx", ["-y"], [f"{identifier}@{version}" if pinned else identifier]
        case "pypi":
            return "uvx", [], [f"{identifier}=={version}" if pinned else identifier]
        case "oci" | "docker":
            tagged = identifier if ":" in identifier.rpartition("/")[2] or not pinned else f"{identifier}:{version}"
            return "docker", ["run", "-i", "--rm"], [tagged]
        case "nuget":
            return "dnx", [], [f"{identifier}@{version}" if pinned else identifier, "--yes"]
        case _:
            return None


def _arguments(listed: Json, values: InputValues) -> list[str]:
    """Return the arguments with a value, a default, or required: the user then has to set a variable."""
    arguments: list[str] = []
    for item in objects(listed):
        name = as_text(item.get("name"))
        found = _values(item, _label(item), values)
        if item.get("type") != "named" or name is None:
            arguments += found
        elif item.get("format") == "boolean" or ("format" not in item and not found):
            arguments += [name] if found in ([], ["true"]) or found[0].startswith("${") else []
        else:
            arguments += [word for value in found for word in (name, value)]
    return arguments


def _named_values(listed: Json, values: InputValues) -> JsonObject:
    """Return named values; a required one without a value refers to the variable of its name."""
    named = ((as_text(item.get("name")), item) for item in objects(listed))
    found = {name: _values(item, name, values) for name, item in named if name is not None}
    return {name: each[0] for name, each in found.items() if each}


def _values(item: JsonObject, name: str, values: InputValues) -> list[str]:
    """Return the values of an input: fixed, the user's, the default, or a variable; none if it is optional."""
    fixed = item.get("value")
    if fixed is not None:
        return [_fill_variables(str(fixed), item, each) for each in _rounds(item, values)]
    chosen = values.get(name)
    if chosen:
        _check_choices(name, item, chosen)
        return list(chosen if item.get("isRepeated") or item.get("is_repeated") else chosen[-1:])
    default = item.get("default")
    if default is not None:
        return [_fill_variables(str(default), item, values)]
    return [variable_reference(name)] if _is_required(item) else []


def _rounds(item: JsonObject, values: InputValues) -> list[InputValues]:
    """Return the values of each repetition of an input that has variables."""
    names = as_object(item.get("variables")) or {}
    most = max((len(values.get(name, ())) for name in names), default=1)
    if not (item.get("isRepeated") or item.get("is_repeated")) or most < 2:
        return [values]
    return [
        {name: found[min(number, len(found) - 1) :][:1] for name, found in values.items()} for number in range(most)
    ]


def _fill_variables(text: str, item: JsonObject, values: InputValues) -> str:
    """Insert the item's variables into `{name}`; one without a value becomes a reference to an environment variable."""
    declared = as_object(item.get("variables")) or {}

    def value(match: re.Match[str]) -> str:
        known = as_object(declared.get(match[1]))
        if known is None:
            return match[0]
        name = as_text(known.get("name")) or match[1]
        given = known.get("value")
        if given is None and (chosen := values.get(name)):
            _check_choices(name, known, chosen)
            return chosen[-1]
        given = known.get("default") if given is None else given
        return str(given) if given is not None else variable_reference(name)

    return _PLACEHOLDER.sub(value, text)


def _check_choices(name: str, item: JsonObject, chosen: Sequence[str]) -> None:
    choices = [str(each) for each in as_list(item.get("choices")) or ()]
    for value in chosen:
        if choices and value not in choices:
            raise InvalidRequest("registry.value", f"{name} must be one of {', '.join(choices)}, not {value!r}.")
