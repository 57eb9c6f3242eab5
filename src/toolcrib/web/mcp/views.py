"""Views: what one address of the endpoint shows, under which names, and how it introduces itself.

- `/mcp` shows everything under names that are unique in the crib.
- `/mcp?tools=search` shows the same, with two search tools in place of all tools.
- `/mcp?tools=code` shows the same, with three tools in place of all tools: find, describe, and run a program.
- `/mcp/agents/{agentId}` shows any of these with the agent's prompt; the principal determines its tools.
- `/mcp/servers/{name}` shows one server under its own names.

A view is stateless: the principal is passed to every method, and every call or read goes through the gate.

Must never show what the gate does not list.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

from toolcrib.gate.gate import Gate
from toolcrib.gate.programs import code_tools
from toolcrib.gate.programs.code_tools import ProgramRequest
from toolcrib.gate.results import reading
from toolcrib.gate.search import search_tools
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import TASKS_EXTENSION
from toolcrib.model.skills import SKILLS_EXTENSION
from toolcrib.model.sources import Introduction
from toolcrib.model.tools import CallResult, ContentItem, Tool, ToolRef
from toolcrib.model.version import __version__
from toolcrib.web.mcp import uris
from toolcrib.web.mcp.apps import AppsOfListings

Kind = Literal["tools", "prompts", "resources", "resourceTemplates"]
"""What is listed; also the name of the list in the result."""

Introduce = Callable[[Principal, str], Introduction | None]
"""Returns the introduction of a server that the principal sees, or None if it is not known yet."""

Instruct = Callable[[Principal], Awaitable[str]]
"""Returns the current prompt of the principal's agent."""

Target = tuple[ToolRef, JsonObject] | ProgramRequest | Callable[[], Awaitable[CallResult]] | CallResult | None
"""What a tool name resolves to, or None if it does not exist: a tool and its arguments, a program to run, or a result
or its computation."""

SERVER_INFO: JsonObject = {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
INSTRUCTIONS_KEPT = 16_384
"""Characters of a server's instructions that are passed on."""


class McpView(ABC):
    """What one address of the endpoint shows."""

    is_one_server = False
    """Whether protocol errors of the server are passed on unchanged."""

    how_to_read = f"Read on with `{reading.READ}`."
    """How a client reads on in a shortened result."""

    own_tools: frozenset[str] = frozenset()
    """Tools of the view itself, which find or call others."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def variant(self, principal: Principal) -> str:
        """Return what distinguishes lists of the same listing: whether there are results to read on."""
        return ""

    @property
    @abstractmethod
    def key(self) -> str:
        """A unique key of this view: sessions, pages and sealed state are bound to it."""

    @abstractmethod
    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield the serialized entries of a list, each with its unique sort key."""

    @abstractmethod
    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return a value that stays equal while the list is unchanged."""

    @abstractmethod
    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Resolve a tool name."""

    @abstractmethod
    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """Return the server of a prompt and the server's name for it."""

    @abstractmethod
    def reader(self, principal: Principal, uri: str) -> str | None:
        """Return the server that a resource is read from."""

    def app_resource(self, principal: Principal, uri: str) -> tuple[str, str] | None:
        """Return the server of a UI resource and its own URI, where that may differ from the one that clients see."""
        return None

    @abstractmethod
    def capabilities(self, principal: Principal) -> JsonObject:
        """Return the capabilities to declare."""

    def server_info(self, principal: Principal) -> JsonObject:
        """Return the server info of the handshake."""
        return SERVER_INFO

    async def instructions(self, principal: Principal) -> str | None:
        """Return the instructions of the handshake."""
        return None


class Everything(McpView):
    """Everything the principal may use, under the crib's names; with `instruct`, with the prompt of its agent."""

    def __init__(self, gate: Gate, instruct: Instruct | None = None) -> None:
        super().__init__(gate)
        self._instruct = instruct
        self._apps = AppsOfListings()

    @property
    def key(self) -> str:
        """One key for all agents: the principal distinguishes them."""
        return "agent" if self._instruct is not None else "all"

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield tools and prompts under their unique names, and resources by URI, each URI once."""
        if kind == "tools":
            apps = self._apps.of(self._gate.listing(principal))
            for tool in self._gate.listed(principal):
                name = self._gate.name("endpoint", tool.ref)
                changed = apps.definition(tool)
                yield name, _serialize(name, tool) if changed is None else dumps({"name": name, **changed})
            if self._gate.results.is_read_by(principal):
                yield reading.READ, dumps(reading.DEFINITION)
        elif kind == "prompts":
            for item in self._gate.prompts(principal):
                name = self._gate.name("prompt", ToolRef(item.server, item.key))
                yield name, dumps({**item.definition, "name": name})
        else:
            first: dict[str, JsonObject] = {}
            for item in sorted(self._items(kind, principal), key=lambda item: item.server):
                first.setdefault(item.key, item.definition)
            yield from ((key, dumps(definition)) for key, definition in first.items())

    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return the definitions themselves."""
        if kind != "tools":
            return self._items(kind, principal)
        tools = self._gate.listed(principal)
        return (*tools, reading.READ) if self._gate.results.is_read_by(principal) else tools

    def variant(self, principal: Principal) -> str:
        """Return whether `read_result` is listed, which depends on the principal's kept results."""
        return reading.READ if self._gate.results.is_read_by(principal) else ""

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Resolve a unique tool name, or the name by which an app calls a tool of its server."""
        ref = self._gate.ref_of_name("endpoint", name)
        if ref is None:
            ref = self._apps.of(self._gate.listing(principal)).tool(name)
        return None if ref is None else (ref, arguments)

    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """Resolve a unique prompt name, if the principal sees the prompt."""
        ref = self._gate.ref_of_name("prompt", name)
        known = ref is not None and any(ref == (item.server, item.key) for item in self._gate.prompts(principal))
        return ref if known else None

    def reader(self, principal: Principal, uri: str) -> str | None:
        """Return the first server that lists the URI, or else has the best template, or else a tool that names it."""
        listed = (item.server for item in self._gate.resources(principal) if item.key == uri)
        if (server := min(listed, default=None)) is not None:
            return server
        fitting = [item for item in self._gate.templates(principal) if item.key == uri or uris.matches(item.key, uri)]
        if fitting:
            return min(fitting, key=lambda item: (item.key != uri, -uris.weight(item.key), item.server)).server
        found = self.app_resource(principal, uri)
        return found[0] if found is not None else None

    def app_resource(self, principal: Principal, uri: str) -> tuple[str, str] | None:
        """Return the server and its own URI of a UI resource that a tool names."""
        return self._apps.of(self._gate.listing(principal)).resource(uri)

    def capabilities(self, principal: Principal) -> JsonObject:
        """Return all capabilities: servers come and go, so what is missing now may appear later."""
        changing: JsonObject = {"listChanged": True}
        return {
            "tools": changing,
            "prompts": changing,
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            "logging": {},
            "extensions": {SKILLS_EXTENSION: {}, TASKS_EXTENSION: {}},
        }

    async def instructions(self, principal: Principal) -> str | None:
        """Return the agent's whole prompt, without a length limit, because the owner wrote it."""
        return await self._instruct(principal) if self._instruct is not None else None

    def _items(self, kind: Kind, principal: Principal) -> Sequence[ContentItem]:
        return _items(self._gate, kind, principal)


class Searchable(Everything):
    """Everything, with two tools in place of all tools: one finds, one calls."""

    how_to_read = f"Read on with `{search_tools.CALL}` and the ref `{reading.READ}`."
    own_tools = frozenset({search_tools.FIND, search_tools.CALL})
    runs_code = False

    @property
    def key(self) -> str:
        """A separate key, because the tool list differs."""
        return f"{super().key} by search"

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield the two tools; other kinds are unchanged."""
        if kind == "tools":
            yield from ((definition["name"], dumps(definition)) for definition in search_tools.DEFINITIONS)
            if principal.kind == "session" and self._gate.results.is_read_by(principal):
                yield reading.READ, dumps(reading.DEFINITION)
        else:
            yield from super().entries(kind, principal)

    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return a constant for tools: the two never change."""
        return () if kind == "tools" else super().fingerprint(kind, principal)

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Return the matches for `find_tools`, or the tool that `call_tool` names."""
        if name == search_tools.FIND:
            return partial(code_tools.find, self._gate, principal, arguments, by_code=self.runs_code)
        return search_tools.parse_call(arguments) if name == search_tools.CALL else None

    async def instructions(self, principal: Principal) -> str | None:
        """Return how to find tools, after the agent's prompt if there is one."""
        own = await super().instructions(principal)
        return f"{own}\n\n{search_tools.INSTRUCTIONS}" if own else search_tools.INSTRUCTIONS

    def capabilities(self, principal: Principal) -> JsonObject:
        """Return all capabilities, with a constant tool list."""
        return {**super().capabilities(principal), "tools": {}}


class Programmable(Searchable):
    """Everything, with three tools in place of all tools: find, describe, and run a program that calls them."""

    @property
    def key(self) -> str:
        """A separate key, because the tool list differs."""
        return f"{super().key} by code"

    how_to_read = f"Read on with `{reading.READ}`, or print less."
    own_tools = frozenset({search_tools.FIND, code_tools.DESCRIBE, code_tools.RUN})
    runs_code = True

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield the three tools, and `read_result` while there are results to read; other kinds are unchanged."""
        if kind != "tools":
            yield from super().entries(kind, principal)
            return
        yield from ((definition["name"], dumps(definition)) for definition in code_tools.DEFINITIONS)
        if self._gate.results.is_read_by(principal):
            yield reading.READ, dumps(reading.DEFINITION)

    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return what changes in the list of tools: whether there are results to read."""
        return (self.variant(principal),) if kind == "tools" else super().fingerprint(kind, principal)

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Return the matches, the stubs, or the program to run."""
        if name == code_tools.RUN:
            return code_tools.read_program(arguments)
        if name == code_tools.DESCRIBE:
            return code_tools.described(arguments, code_tools.functions(self._gate, principal))
        return super().target(principal, name, arguments) if name == search_tools.FIND else None

    async def instructions(self, principal: Principal) -> str | None:
        """Return how to write programs, after the agent's prompt if there is one."""
        own = await Everything.instructions(self, principal)
        return f"{own}\n\n{code_tools.INSTRUCTIONS}" if own else code_tools.INSTRUCTIONS

    def capabilities(self, principal: Principal) -> JsonObject:
        """Return all capabilities: the list changes when there are results to read."""
        return Everything.capabilities(self, principal)


class OneServer(McpView):
    """One server under its own names, through the same gate."""

    is_one_server = True

    def __init__(self, gate: Gate, name: str, introduce: Introduce) -> None:
        super().__init__(gate)
        self._name = name
        self._introduce = introduce

    @property
    def key(self) -> str:
        """A key per server name."""
        return f"server:{self._name}"

    def exists_for(self, principal: Principal) -> bool:
        """Return whether this principal can see the server."""
        return self._server(principal) in self._gate.servers(principal)

    def is_met_by(self, principal: Principal) -> bool:
        """Return whether the server's introduction is known."""
        return bool(self._introduction(principal).capabilities)

    def entries(self, kind: Kind, principal: Principal) -> Iterator[tuple[str, bytes]]:
        """Yield what the server offers and the principal may see, with the server's own names."""
        if kind == "tools":
            for tool in self._tools(principal):
                yield tool.ref.tool, _serialize(tool.ref.tool, tool)
        else:
            yield from ((item.key, dumps(item.definition)) for item in self._items(kind, principal))

    def fingerprint(self, kind: Kind, principal: Principal) -> Sequence[object]:
        """Return the definitions themselves."""
        return tuple(self._tools(principal)) if kind == "tools" else tuple(self._items(kind, principal))

    def target(self, principal: Principal, name: str, arguments: JsonObject) -> Target:
        """Resolve the server's own tool name."""
        return ToolRef(self._server(principal), name), arguments

    def prompt(self, principal: Principal, name: str) -> ToolRef | None:
        """Return the server's own prompt name. The server decides whether it exists."""
        return ToolRef(self._server(principal), name)

    def reader(self, principal: Principal, uri: str) -> str | None:
        """Return the server, which may have more resources than it lists."""
        return self._server(principal)

    def capabilities(self, principal: Principal) -> JsonObject:
        """Return the server's capabilities that the endpoint supports, or all of them if they are not known yet."""
        has = self._introduction(principal).capabilities
        if not has:
            return Everything(self._gate).capabilities(principal)
        carried: JsonObject = {
            kind: {"listChanged": True} for kind in ("tools", "prompts", "resources") if is_object(has.get(kind))
        }
        if "resources" in carried and has["resources"].get("subscribe"):
            carried["resources"]["subscribe"] = True
        carried |= {kind: has[kind] for kind in ("completions", "logging") if is_object(has.get(kind))}
        extensions: Json = has.get("extensions")
        own: JsonObject = {TASKS_EXTENSION: {}}  # calls become tasks here, whether the server supports them or not
        if is_object(extensions):
            own = {**extensions, **({SKILLS_EXTENSION: {}} if SKILLS_EXTENSION in extensions else {}), **own}
        carried["extensions"] = own
        return carried

    def server_info(self, principal: Principal) -> JsonObject:
        """Return the crib's server info, with the server's title and version in the description."""
        info = self._introduction(principal).info
        title = next((text for key in ("title", "name") if isinstance(text := info.get(key), str) and text), self._name)
        version: Json = info.get("version")
        described = f"{title} {version}" if isinstance(version, str) and version else title
        return {**SERVER_INFO, "title": title[:200], "description": f"{described[:400]}, through Toolcrib"}

    async def instructions(self, principal: Principal) -> str | None:
        """Return the server's instructions, truncated."""
        text = self._introduction(principal).instructions
        return text[:INSTRUCTIONS_KEPT] if text else None

    def _introduction(self, principal: Principal) -> Introduction:
        return self._introduce(principal, self._name) or Introduction()

    def _tools(self, principal: Principal) -> Iterable[Tool]:
        server = self._server(principal)
        return (tool for tool in self._gate.listed(principal) if tool.ref.server == server)

    def _items(self, kind: Kind, principal: Principal) -> Iterable[ContentItem]:
        server = self._server(principal)
        return (item for item in _items(self._gate, kind, principal) if item.server == server)

    def _server(self, principal: Principal) -> str:
        """Return the server's primary name: the address may contain any name of its definition."""
        return self._gate.server(principal, self._name)


def _items(gate: Gate, kind: Kind, principal: Principal) -> Sequence[ContentItem]:
    if kind == "prompts":
        return gate.prompts(principal)
    return gate.resources(principal) if kind == "resources" else gate.templates(principal)


def _serialize(name: str, tool: Tool) -> bytes:
    """Serialize a tool under this name."""
    return b'{"name":%b,%b' % (dumps(name), tool.encoded[1:])
