"""Files that describe a server for others to install: the registry's `server.json`, MCPB manifests, `fastmcp.json`.

The file names are common, so an unrelated file yields neither entries nor problems. The start command is derived from
the description; nothing is looked up or installed.
"""

from typing import TYPE_CHECKING

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.json import Json, JsonObject, as_object, as_text, at
from toolcrib.servers.readers.dialect import Dialect, FoundEntry, Layout, ReadingContext
from toolcrib.servers.readers.layouts import by_name

if TYPE_CHECKING:
    from toolcrib.servers.registry import server_json
else:
    server_json = lazy_module("toolcrib.servers.registry.server_json")


def registry(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find entries in the registry's `server.json`: one per remote and per package."""
    name = as_text(at(value, "name"))
    packages = server_json.objects(at(value, "packages"))
    remotes = server_json.objects(at(value, "remotes"))
    if name is None or not (packages or remotes):
        return Layout()
    ways = [("remotes", index, server_json.remote_entry(remote)) for index, remote in enumerate(remotes)]
    ways += [("packages", index, server_json.package_entry(package)) for index, package in enumerate(packages)]
    entries = (
        FoundEntry(name if number == 0 else f"{name}#{number + 1}", raw, (key, index))
        for number, (key, index, raw) in enumerate(ways)
    )
    notes = (
        (
            f"{server_json.package_identifier(package)} listens on a URL; start it yourself before you connect",
            ("packages", index),
        )
        for index, package in enumerate(packages)
        if server_json.transport_url(package) is not None
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
