"""Skills over MCP (SEP-2640) at the endpoint: `skills/list`, `skills/get`, and reads of the files of skills.

At `/mcp` the skills of all servers have collision-free URIs, `skill://SERVER/…/SKILL.md`. At the address of one server
they keep their own.

Must never name a skill that the principal does not see.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol

from toolcrib.gate.gate import Gate
from toolcrib.gate.pins.skill_files import held_back
from toolcrib.gate.refusals import error_sentence
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.jsonrpc import RpcError
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INTERNAL_ERROR, INVALID_PARAMS
from toolcrib.model.skills import SKILL_FILE, SKILL_SCHEME, SKILLS_EXTENSION, SkillUris
from toolcrib.model.sources import ContentMethod
from toolcrib.model.tools import ContentItem, ToolRef
from toolcrib.web.mcp.pages import PAGE_BYTES, encode_cursor, read_cursor
from toolcrib.web.mcp.request import McpRequest

Ready = Callable[[Principal, str], Awaitable[None]]
"""Connects a server if needed, and judges what it offers. Raises `Unavailable` on failure."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


class PerformContent(Protocol):
    """Performs a request for the params of a client's request, with every failure as `RpcError`."""

    def __call__(
        self, method: ContentMethod, ask: Callable[..., Awaitable[JsonObject]], *, uri: str
    ) -> Awaitable[JsonObject]:
        """Call `ask` with the params of the request, changed to this URI."""
        ...


class SkillMethods:
    """Answers requests about skills."""

    def __init__(self, gate: Gate, ready: Ready | None) -> None:
        self._gate = gate
        self._ready = ready

    async def list_page(self, request: McpRequest) -> JsonObject:
        """Return one page of the skills that the principal sees."""
        entries = sorted((await self._entries(request)).values(), key=lambda entry: entry["uri"])
        cursor: Json = request.message.params.get("cursor")
        start = read_cursor(cursor) if cursor is not None else ""
        page: list[JsonObject] = []
        size = 0
        for entry in entries:
            if entry["uri"] < start:
                continue
            size += len(dumps(entry))
            if page and size > PAGE_BYTES:
                return {"skills": page, "nextCursor": encode_cursor(entry["uri"]), **_stamp(request)}
            page.append(entry)
        return {"skills": page, **_stamp(request)}

    async def get(self, request: McpRequest, perform: PerformContent) -> JsonObject:
        """Return the entry of one skill, which its server need not list."""
        uri: Json = request.message.params.get("uri")
        entry = (await self._entries(request)).get(uri) if isinstance(uri, str) else None
        if entry is None and isinstance(uri, str) and await self._look_up(request, uri, perform):
            entry = (await self._entries(request)).get(uri)
        if entry is None:
            raise RpcError(INVALID_PARAMS, f"No skill is served at {uri}", {"uri": uri})
        return {"skill": entry, **_stamp(request)}

    async def read(self, request: McpRequest, uri: str, perform: PerformContent) -> JsonObject | None:
        """Read a file of a skill. Returns None for a resource that belongs to no skill."""
        found = await self._find(request, uri)
        if found is None and await self._look_up(request, uri, perform):
            found = await self._find(request, uri)
        if found is None:
            return None
        item, own = found
        read = partial(self._gate.skills.read, request.principal, item, door="mcp")
        return with_uri(await perform("resources/read", read, uri=own), own, uri)

    async def _look_up(self, request: McpRequest, uri: str, perform: PerformContent) -> bool:
        """Ask for a skill that its server does not list, so that it is pinned. Returns whether there is one.

        Raises `RpcError` if the skill is held back or its server does not answer.
        """
        for server, own in self._places(request, uri):
            ask = partial(self._gate.request, request.principal, server, "skills/get", door="mcp")
            try:
                await perform("skills/get", ask, uri=own)
            except RpcError as error:
                if error.code == INTERNAL_ERROR:
                    raise
                continue
            if self._ready is not None:
                await self._ready(request.principal, server)
            if self._gate.skills.is_withheld(request.principal, server, own):
                raise RpcError(INTERNAL_ERROR, error_sentence(held_back(ToolRef(server, own))))
            return True
        return False

    def _places(self, request: McpRequest, uri: str) -> Iterator[tuple[str, str]]:
        """Yield the servers that may have a skill at this URI, each with its own URI."""
        if not uri.endswith(SKILL_FILE):
            return
        if request.mcp_view.is_one_server:
            server = request.mcp_view.reader(request.principal, uri)
            extensions: Json = request.mcp_view.capabilities(request.principal).get("extensions")
            if server is not None and is_object(extensions) and SKILLS_EXTENSION in extensions:
                yield server, uri
            return
        server, _, path = uri.removeprefix(SKILL_SCHEME).partition("/")
        if uri.startswith(SKILL_SCHEME) and server in self._gate.servers(request.principal):
            yield server, SKILL_SCHEME + path
            scheme, _, rest = path.partition("/")
            if _SCHEME.fullmatch(scheme) and "/" in rest:
                yield server, f"{scheme}://{rest}"

    async def _entries(self, request: McpRequest) -> dict[str, JsonObject]:
        skills = await self._visible(request)
        if request.mcp_view.is_one_server:
            return {item.key: item.definition for item in skills}
        uris = SkillUris(skills)
        return {entry["uri"]: entry for entry in map(uris.exposed, skills)}

    async def _visible(self, request: McpRequest) -> list[ContentItem]:
        skills = await self._gate.skills.visible(request.principal)
        if not request.mcp_view.is_one_server:
            return skills
        server = request.mcp_view.reader(request.principal, "")
        return [item for item in skills if item.server == server]

    async def _find(self, request: McpRequest, uri: str) -> tuple[ContentItem, str] | None:
        if not request.mcp_view.is_one_server and (found := SkillUris(await self._visible(request)).find(uri)):
            return found
        server = request.mcp_view.reader(request.principal, uri)
        item = await self._gate.skills.of_file(request.principal, server, uri) if server is not None else None
        return (item, uri) if item is not None else None


def _stamp(request: McpRequest) -> JsonObject:
    return {"ttlMs": 0, "cacheScope": "private"} if request.era == "modern" else {}


def with_uri(result: JsonObject, own: str, shown: str) -> JsonObject:
    """Return the result of a read with the URI that the client was shown in place of the server's own."""
    contents: Json = result.get("contents")
    if own == shown or not is_array(contents):
        return result
    renamed: list[Json] = [
        {**content, "uri": shown} if is_object(content) and content.get("uri") == own else content
        for content in contents
    ]
    return {**result, "contents": renamed}
