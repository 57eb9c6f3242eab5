"""Faces: what one address of the endpoint shows, under which names, and what it says of itself.

`/mcp` shows everything under names that are unique in the crib; `/mcp?tools=search` the same, but for two tools in
place of all; `/mcp/agents/{agentId}` either of them in the words of an agent, since what it may use is already decided
by who asks; `/mcp/servers/{name}` one server under its own names. A face is a value without state of its own: who asks
is told with every question, and whatever is called or read goes through the gate.

Above: the methods, the pages and the SDK's server. Below: the gate's view of the asker. It must never show what the
gate does not list.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Literal

import orjson

from toolcrib.gate import Gate
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import META
from toolcrib.model.sources import Introduction
from toolcrib.model.tools import CallResult, ContentItem, Tool, ToolRef
from toolcrib.server.mcp import search_tools, uris
from toolcrib.version import __version__

Kind = Literal["tools", "prompts", "resources", "resourceTemplates"]
"""What is listed; also the member of the result that the list stands in."""

Introduce = Callable[[Principal, str], Introduction | None]
"""What a server in the asker's view said of itself; None while it has said nothing."""

Instruct = Callable[[Principal], Awaitable[str]]
"""The prompt, as it is now, of the agent that asks."""

Target = tuple[ToolRef, JsonObject] | CallResult | None
"""What a call of a shown name means: a tool and its arguments, an answer that needs no tool, or nothing that exists."""

SERVER_INFO: JsonObject = {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
INSTRUCTIONS_KEPT = 16_384
"""Characters of a server's instructions that are passed on."""

_NOT_CARRIED = frozenset({"io.modelcontextprotocol/tasks"})
"""Extensions whose own methods the endpoint does not answer."""


class Face(ABC):
    """One view of the crib."""

    is_one_server = False
    """Whether errors of the protocol are the server's own, to be passed on as they are."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    @abstractmethod
    def key(self) -> str:
        """Tells this face from every other: sessions, pages and sealed state hold for one."""

    @abstractmethod
    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """What a list has, as it is sent, each with the unique key that it is sorted by."""

    @abstractmethod
    def shown(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Equal to itself for as long as the list need not be read again."""

    @abstractmethod
    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """What a call of this name means."""

    @abstractmethod
    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """The server and its own name of a prompt."""

    @abstractmethod
    def reader(self, principal: Principal, uri: str) -> str | None:
        """The server that a resource is read from."""

    @abstractmethod
    def capabilities(self, principal: Principal) -> JsonObject:
        """What a client may rely on here."""

    def server_info(self, principal: Principal) -> JsonObject:
        """Who answers here."""
        return SERVER_INFO

    async def instructions(self, principal: Principal) -> str | None:
        """How this wants to be used."""
        return None


class Everything(Face):
    """All that the asker may use, under the crib's names; with `instruct` in the words of the agent that asks."""

    def __init__(self, gate: Gate, instruct: Instruct | None = None) -> None:
        super().__init__(gate)
        self._instruct = instruct

    @property
    def key(self) -> str:
        """One for all, and one for all agents: which one it is says the asker."""
        return "agent" if self._instruct is not None else "all"

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Tools and prompts under their shown names, resources under their URIs, each URI once."""
        if kind == "tools":
            for tool in self._gate.listing(principal).tools:
                name = self._gate.name("endpoint", tool.ref)
                yield name, _named(name, tool)
        elif kind == "prompts":
            for item in self._gate.prompts(principal):
                name = self._gate.name("prompt", ToolRef(item.server, item.key))
                yield name, orjson.dumps({**item.definition, "name": name})
        else:
            first: dict[str, JsonObject] = {}
            for item in sorted(self._items(kind, principal), key=lambda item: item.server):
                first.setdefault(item.key, item.definition)
            yield from ((key, orjson.dumps(definition)) for key, definition in first.items())

    def shown(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """The definitions themselves."""
        return self._gate.listing(principal).tools if kind == "tools" else self._items(kind, principal)

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """The tool of a shown name."""
        ref = self._gate.named("endpoint", name)
        return None if ref is None else (ref, arguments)

    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """The prompt of a shown name, if the asker sees it."""
        ref = self._gate.named("prompt", name)
        known = ref is not None and any(ref == (item.server, item.key) for item in self._gate.prompts(principal))
        return ref if known else None

    def reader(self, principal: Principal, uri: str) -> str | None:
        """The first server that lists the URI, else the one whose template fits best, else one whose tool names it."""
        listed = (item.server for item in self._gate.resources(principal) if item.key == uri)
        if (server := min(listed, default=None)) is not None:
            return server
        fitting = [item for item in self._gate.templates(principal) if item.key == uri or uris.matches(item.key, uri)]
        if fitting:
            return min(fitting, key=lambda item: (item.key != uri, -uris.weight(item.key), item.server)).server
        return min((tool.ref.server for tool in self._gate.listing(principal).tools if _app(tool) == uri), default=None)

    def capabilities(self, principal: Principal) -> JsonObject:
        """Everything: servers come and go, so what is not here now may be here later."""
        changing: JsonObject = {"listChanged": True}
        return {
            "tools": changing,
            "prompts": changing,
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            "logging": {},
        }

    async def instructions(self, principal: Principal) -> str | None:
        """The agent's whole prompt, however long: it is the owner's own."""
        return await self._instruct(principal) if self._instruct is not None else None

    def _items(self, kind: Kind, principal: Principal) -> Sequence[ContentItem]:
        return _items(self._gate, kind, principal)


class Searchable(Everything):
    """All of it, but two tools stand for all tools: one finds, one calls."""

    @property
    def key(self) -> str:
        """Its own, since its list of tools is another one."""
        return f"{super().key} by search"

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """The two tools; all else as everywhere."""
        if kind == "tools":
            yield from ((definition["name"], orjson.dumps(definition)) for definition in search_tools.DEFINITIONS)
        else:
            yield from super().entries(kind, principal)

    def shown(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """The two tools never change."""
        return () if kind == "tools" else super().shown(kind, principal)

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Matches for `find_tools`; for `call_tool` the tool that it names."""
        if name == search_tools.FIND:
            return search_tools.find(self._gate.listing(principal).tools, arguments)
        return search_tools.called(arguments) if name == search_tools.CALL else None

    async def instructions(self, principal: Principal) -> str | None:
        """How to come by the tools; an agent is first told who it is."""
        own = await super().instructions(principal)
        return f"{own}\n\n{search_tools.INSTRUCTIONS}" if own else search_tools.INSTRUCTIONS

    def capabilities(self, principal: Principal) -> JsonObject:
        """As everywhere, but the list of tools stays what it is."""
        return {**super().capabilities(principal), "tools": {}}


class OneServer(Face):
    """One server under its own names, through the same gate."""

    is_one_server = True

    def __init__(self, gate: Gate, name: str, introduce: Introduce) -> None:
        super().__init__(gate)
        self._name = name
        self._introduce = introduce

    @property
    def key(self) -> str:
        """The server's."""
        return f"server:{self._name}"

    def exists_for(self, principal: Principal) -> bool:
        """Whether there is such a server for this asker."""
        return self._name in self._gate.servers(principal)

    def is_met_by(self, principal: Principal) -> bool:
        """Whether the server said anything of itself yet."""
        return bool(self._said(principal).capabilities)

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """What the server offers and the asker may see, as the server says it."""
        if kind == "tools":
            for tool in self._tools(principal):
                yield tool.ref.tool, _named(tool.ref.tool, tool)
        else:
            yield from ((item.key, orjson.dumps(item.definition)) for item in self._items(kind, principal))

    def shown(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """The definitions themselves."""
        return tuple(self._tools(principal)) if kind == "tools" else tuple(self._items(kind, principal))

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """The server's tool of this name."""
        return ToolRef(self._name, name), arguments

    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """The server's prompt of this name; whether there is one is for the server to say."""
        return ToolRef(self._name, name)

    def reader(self, principal: Principal, uri: str) -> str | None:
        """The server, which may have more than it lists."""
        return self._name

    def capabilities(self, principal: Principal) -> JsonObject:
        """The server's own, as far as the endpoint carries them; all of them while it has not been met."""
        has = self._said(principal).capabilities
        if not has:
            return Everything(self._gate).capabilities(principal)
        carried: JsonObject = {
            kind: {"listChanged": True} for kind in ("tools", "prompts", "resources") if is_object(has.get(kind))
        }
        if "resources" in carried and has["resources"].get("subscribe"):
            carried["resources"]["subscribe"] = True
        carried |= {kind: has[kind] for kind in ("completions", "logging") if is_object(has.get(kind))}
        extensions: Json = has.get("extensions")
        if is_object(extensions) and (kept := {key: extensions[key] for key in extensions if key not in _NOT_CARRIED}):
            carried["extensions"] = kept
        return carried

    def server_info(self, principal: Principal) -> JsonObject:
        """The crib's, with the server's title and version for people to read."""
        info = self._said(principal).info
        title = next((text for key in ("title", "name") if isinstance(text := info.get(key), str) and text), self._name)
        version: Json = info.get("version")
        described = f"{title} {version}" if isinstance(version, str) and version else title
        return {**SERVER_INFO, "title": title[:200], "description": f"{described[:400]}, through Toolcrib"}

    async def instructions(self, principal: Principal) -> str | None:
        """The server's own, up to a length."""
        said = self._said(principal).instructions
        return said[:INSTRUCTIONS_KEPT] if said else None

    def _said(self, principal: Principal) -> Introduction:
        return self._introduce(principal, self._name) or Introduction()

    def _tools(self, principal: Principal) -> Iterable[Tool]:
        return (tool for tool in self._gate.listing(principal).tools if tool.ref.server == self._name)

    def _items(self, kind: Kind, principal: Principal) -> Iterable[ContentItem]:
        return (item for item in _items(self._gate, kind, principal) if item.server == self._name)


def _items(gate: Gate, kind: Kind, principal: Principal) -> Sequence[ContentItem]:
    if kind == "prompts":
        return gate.prompts(principal)
    return gate.resources(principal) if kind == "resources" else gate.templates(principal)


def _named(name: str, tool: Tool) -> bytes:
    """A tool as it is listed under a name."""
    return b'{"name":%b,%b' % (orjson.dumps(name), tool.encoded[1:])


def _app(tool: Tool) -> str | None:
    """The resource that a tool's result is shown with (MCP Apps); servers need not list it."""
    meta: Json = tool.extra.get(META)
    ui: Json = meta.get("ui") if is_object(meta) else None
    uri: Json = ui.get("resourceUri") if is_object(ui) else None
    return uri if isinstance(uri, str) else None
