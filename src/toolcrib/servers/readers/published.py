"""Files that describe a server for others to install: the registry's `server.json`, MCPB manifests, `fastmcp.json`.

The file names are common, so an unrelated file yields neither entries nor problems. The start command is derived from
the description; nothing is looked up or installed.
"""

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.json_values import as_list, as_object, as_text, at
from toolcrib.servers.readers.dialect import Dialect, FoundEntry, Layout, ReadingContext
from toolcrib.servers.readers.layouts import by_name


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
    return Layout(tuple(entries))


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
    raw: JsonObject = {"type": remote.get("type") or remote.get("transport_type") or "http", "url": remote.get("url")}
    headers = _named_values(remote.get("headers"))
    return raw | {"headers": headers} if headers else raw


def _package(package: JsonObject) -> JsonObject:
    kind = str(package.get("registryType") or package.get("registry_type") or package.get("registry_name") or "")
    identifier = str(package.get("identifier") or package.get("name") or "")
    version = str(package.get("version") or "")
    launch = _launch(kind, identifier, version)
    if launch is None:
        return {"registryType": kind, "identifier": identifier}
    command, before, after = launch
    runtime = _arguments(package.get("runtimeArguments") or package.get("runtime_arguments"))
    own = _arguments(package.get("packageArguments") or package.get("package_arguments"))
    raw: JsonObject = {"command": str(package.get("runtimeHint") or command), "args": [*before, *runtime, *after, *own]}
    env = _named_values(package.get("environmentVariables") or package.get("environment_variables"))
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
    """Return arguments with a value or default; the user has to provide the others."""
    arguments: list[str] = []
    for item in _objects(listed):
        value = item.get("value", item.get("default"))
        if item.get("type") == "named" and isinstance(item.get("name"), str):
            arguments += [str(item["name"]), *([str(value)] if value is not None else [])]
        elif value is not None:
            arguments.append(str(value))
    return arguments


def _named_values(listed: Json) -> JsonObject:
    """Return named values; a required one without a value refers to the variable of its name."""
    values: JsonObject = {}
    for item in _objects(listed):
        name = item.get("name")
        value = item.get("value", item.get("default"))
        if isinstance(name, str) and value is not None:
            values[name] = str(value)
        elif isinstance(name, str) and (item.get("isRequired") or item.get("is_required")):
            values[name] = f"${{{name}}}"
    return values


def _objects(value: Json) -> list[JsonObject]:
    return [item for listed in as_list(value) or () if (item := as_object(listed)) is not None]
