"""Files that describe a server for others to install: the registry's `server.json`, MCPB manifests, `fastmcp.json`.

The file names are common, so an unrelated file yields neither entries nor problems. The start command is derived from
the description; nothing is looked up or installed.
"""

import re

from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.servers.readers.dialect import Dialect, FoundEntry, Layout, ReadingContext
from toolcrib.servers.readers.layouts import by_name

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


def registry(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find entries in the registry's `server.json`: one per remote and per package."""
    name = as_text(at(value, "name"))
    packages = _objects(at(value, "packages"))
    remotes = _objects(at(value, "remotes"))
    if name is None or not (packages or remotes):
        return Layout()
    ways = [("remotes", index, _remote(remote)) for index, remote in enumerate(remotes)]
    ways += [("packages", index, _package(package)) for index, package in enumerate(packages)]
    entries = (
        FoundEntry(name if number == 0 else f"{name}#{number + 1}", raw, (key, index))
        for number, (key, index, raw) in enumerate(ways)
    )
    notes = (
        (f"{_identifier(package)} listens on a URL; start it yourself before you connect", ("packages", index))
        for index, package in enumerate(packages)
        if _transport_url(package) is not None
    )
    return Layout(tuple(entries), notes=tuple(notes))


def mcpb(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find the entry of an MCPB (formerly DXT) manifest: `server.mcp_config` with this platform's overrides."""
    manifest = as_object(value) or {}
    config = as_object(at(manifest, "server", "mcp_config"))
    if config is None or not ("manifest_version" in manifest or "dxt_version" in manifest):
        return Layout()
    raw = dict(config)
    raw |= as_object(at(raw.pop("platform_overrides", None), context.platform)) or {}
    return Layout((FoundEntry(as_text(manifest.get("name")) or "server", raw, ("server", "mcp_config")),))


def fastmcp(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find the entry of `fastmcp.json`: a server in this directory, or the client form with `mcpServers`."""
    if at(value, "mcpServers") is not None:
        return by_name(value, dialect, context)
    if as_object(at(value, "source")) is None:
        return Layout()
    env = at(value, "deployment", "env")
    raw: JsonObject = {"command": "fastmcp", "args": ["run", context.file.name, "--transport", "stdio"]}
    raw |= {"env": env} if isinstance(env, dict) else {}
    raw |= {"cwd": str(context.file.parent)}
    return Layout((FoundEntry(context.file.parent.name or "fastmcp", raw, ("source",)),))


def _remote(remote: JsonObject) -> JsonObject:
    url = as_text(remote.get("url"))
    raw: JsonObject = {
        "type": remote.get("type") or remote.get("transport_type") or "http",
        "url": _filled(url, remote) if url is not None else remote.get("url"),
    }
    headers = _named_values(remote.get("headers"))
    return raw | {"headers": headers} if headers else raw


def _identifier(package: JsonObject) -> str:
    return str(package.get("identifier") or package.get("name") or "")


def _transport_url(package: JsonObject) -> str | None:
    """Return the URL of a package that serves HTTP instead of standard input and output."""
    kind = as_text(at(package, "transport", "type")) or "stdio"
    return as_text(at(package, "transport", "url")) if kind != "stdio" else None


def _package(package: JsonObject) -> JsonObject:
    kind = str(package.get("registryType") or package.get("registry_type") or package.get("registry_name") or "")
    identifier = _identifier(package)
    version = str(package.get("version") or "")
    if _transport_url(package) is not None:
        return _remote(as_object(package.get("transport")) or {})
    launch = _launch(kind, identifier, version)
    if launch is None:
        return {"registryType": kind, "identifier": identifier}
    command, before, after = launch
    runtime = _arguments(package.get("runtimeArguments") or package.get("runtime_arguments"))
    own = _arguments(package.get("packageArguments") or package.get("package_arguments"))
    env = _named_values(package.get("environmentVariables") or package.get("environment_variables"))
    if command == "docker":
        # A container sees only the variables that are passed on by name.
        named = [name for name in env if not any(name in word for word in runtime)]
        runtime = [*runtime, *(word for name in named for word in ("-e", name))]
    raw: JsonObject = {"command": str(package.get("runtimeHint") or command), "args": [*before, *runtime, *after, *own]}
    return raw | {"env": env} if env else raw


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


def _arguments(listed: Json) -> list[str]:
    """Return the arguments with a value, a default, or required: the user then has to set a variable."""
    arguments: list[str] = []
    for item in _objects(listed):
        name = as_text(item.get("name"))
        value = _value(item, name or as_text(item.get("valueHint")) or as_text(item.get("value_hint")) or "argument")
        if item.get("type") == "named" and name is not None:
            is_flag = item.get("format") == "boolean" or ("format" not in item and value is None)
            arguments += [name] if is_flag else [name, value] if value is not None else []
        elif value is not None:
            arguments.append(value)
    return arguments


def _named_values(listed: Json) -> JsonObject:
    """Return named values; a required one without a value refers to the variable of its name."""
    named = ((as_text(item.get("name")), item) for item in _objects(listed))
    values = {name: _value(item, name) for name, item in named if name is not None}
    return {name: value for name, value in values.items() if value is not None}


def _value(item: JsonObject, name: str) -> str | None:
    """Return the value of an input: given, default, or a variable if it is required; None if it is optional."""
    value = item.get("value", item.get("default"))
    if value is not None:
        return _filled(str(value), item)
    return _variable(name) if item.get("isRequired") or item.get("is_required") else None


def _filled(text: str, item: JsonObject) -> str:
    """Insert the item's variables into `{name}`; one without a value becomes a reference to an environment variable."""
    declared = as_object(item.get("variables")) or {}

    def value(match: re.Match[str]) -> str:
        known = as_object(declared.get(match[1]))
        if known is None:
            return match[0]
        given = known.get("value", known.get("default"))
        return str(given) if given is not None else _variable(match[1])

    return _PLACEHOLDER.sub(value, text)


def _variable(name: str) -> str:
    """Return a reference to the environment variable for an input."""
    return f"${{{_UNSAFE.sub('_', name).strip('_') or 'VALUE'}}}"


def _objects(value: Json) -> list[JsonObject]:
    return [item for listed in as_list(value) or () if (item := as_object(listed)) is not None]
