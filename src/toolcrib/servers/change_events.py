"""Publishes the difference between two views as host events."""

from collections.abc import Callable, Mapping

from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import Discovery, ServerEntry
from toolcrib.servers.project_view import ProjectView

Publish = Callable[[HostEventKind, JsonObject], object]


def tell(publish: Publish, before: ProjectView, now: ProjectView) -> None:
    """Publish one `config_changed` with the files, then one `server_changed` per changed server."""
    if before.discovery == now.discovery:
        return
    paths = sorted({*before.prints, *now.prints})
    files = [str(path) for path in paths if before.prints.get(path) != now.prints.get(path)]
    publish("config_changed", {"files": files, "project": now.discovery.project})
    old, new = _by_alias(before.discovery), _by_alias(now.discovery)
    for alias in sorted({*old, *new}):
        if old.get(alias) != new.get(alias):
            publish("server_changed", _event(alias, old, new))


def _by_alias(discovery: Discovery) -> Mapping[str, ServerEntry]:
    return {server.alias: server for server in discovery.servers}


def _event(alias: str, old: Mapping[str, ServerEntry], new: Mapping[str, ServerEntry]) -> JsonObject:
    server = new.get(alias)
    if server is None:
        gone = old[alias]
        return {"name": gone.name, "alias": alias, "change": "removed", "project": gone.source.project}
    change = "changed" if alias in old else "added"
    return {
        "name": server.name,
        "alias": alias,
        "change": change,
        "state": server.state,
        "project": server.source.project,
    }
