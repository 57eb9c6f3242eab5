"""MCP Apps (SEP-1865) at the address of all servers: their UI resources, and the tools that their pages call.

Two servers may use the same `ui://` URI. The first one, by name, keeps it; for the others the server's name is
inserted, so that each tool shows its own page. A page calls the tools of its server by their own names, and the host
forwards the call: such a name is resolved if exactly one server with pages has the tool. Pure.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

from toolcrib.gate.view import Listing
from toolcrib.model.apps import APP_SCHEME, OLD_URI_KEY, app_uri
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.protocol import META
from toolcrib.model.tools import Tool, ToolRef

_KEPT = 64


class AppPages:
    """The UI resources of the tools that one principal sees."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._exposed: dict[tuple[str, str], str] = {}
        self._own: dict[str, tuple[str, str]] = {}
        own_names: defaultdict[str, list[ToolRef]] = defaultdict(list)
        in_order = sorted(tools, key=lambda tool: tool.ref)
        for tool in in_order:
            uri = app_uri(tool)
            if uri is not None and (tool.ref.server, uri) not in self._exposed:
                shown = uri if uri not in self._own else _insert_server(uri, tool.ref.server)
                self._exposed[tool.ref.server, uri] = shown
                self._own.setdefault(shown, (tool.ref.server, uri))
        servers = {server for server, _ in self._exposed}
        for tool in in_order:
            if tool.ref.server in servers:
                own_names[tool.ref.tool].append(tool.ref)
        self._by_name = {name: refs[0] for name, refs in own_names.items() if len(refs) == 1}

    def definition(self, tool: Tool) -> JsonObject | None:
        """Return a tool's definition with the URI that clients see, or None if it needs no change."""
        uri = app_uri(tool)
        shown = self._exposed.get((tool.ref.server, uri)) if uri is not None else None
        if shown is None or shown == uri:
            return None
        meta: JsonObject = {**tool.definition[META]}
        if is_object(meta.get("ui")):
            meta["ui"] = {**meta["ui"], "resourceUri": shown}
        if OLD_URI_KEY in meta:
            meta[OLD_URI_KEY] = shown
        return {**tool.definition, META: meta}

    def resource(self, uri: str) -> tuple[str, str] | None:
        """Return the server of a UI resource and its own URI for it."""
        return self._own.get(uri)

    def tool(self, name: str) -> ToolRef | None:
        """Return the tool that a page means by its server's own name, or None if that is not clear."""
        return self._by_name.get(name)


class AppsOfListings:
    """The apps of the listings in use, computed once for each."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, tuple[Listing, AppPages]] = OrderedDict()

    def of(self, listing: Listing) -> AppPages:
        """Return the apps among the tools of a listing."""
        kept = self._made.get(id(listing))
        if kept is None or kept[0] is not listing:
            kept = self._made[id(listing)] = listing, AppPages(listing.tools)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return kept[1]


def _insert_server(uri: str, server: str) -> str:
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{server}/{rest}" if separator else f"{APP_SCHEME}{server}/{uri}"
