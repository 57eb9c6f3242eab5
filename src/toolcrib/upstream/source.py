"""An upstream as a source of the catalog: its tools, prompts and resources under its name in one project.

Several sources may share one upstream, because a server can have another name, filter or timeout in another project.
Arguments are not validated against the server's schema here; the server does that itself.

Must never let a server failure leave a tool call as an exception: it becomes an error result. Cancellation propagates.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import INVALID_PARAMS
from toolcrib.model.servers import NO_NAMES, ServerNames, ServerSpec, UpstreamStatus
from toolcrib.model.sources import CallContext, ContentMethod, Introduction, ProtocolError, RunCall
from toolcrib.model.tools import CallResult, ContentItem, ProtocolFault, ServerKind, Tool
from toolcrib.servers.identity import identity
from toolcrib.upstream.definitions import UpstreamTool, mcp_param_headers
from toolcrib.upstream.offer import PROMPTS, RESOURCES, SKILLS, TEMPLATES, Offer, content_of, passes, tools_of
from toolcrib.upstream.session_connections import SessionUpstreams
from toolcrib.upstream.upstream import Upstream


class _OfferView:
    """One offer as this source presents it."""

    def __init__(self, offer: Offer, alias: str, spec: ServerSpec, names: ServerNames) -> None:
        self.offer = offer
        timeout = spec.timeout_ms / 1000 if spec.timeout_ms else None
        self.tools, self.problems = tools_of(offer, alias, spec.tools, timeout, names)
        definitions, _ = offer.checked_tools
        self.by_name: Mapping[str, UpstreamTool] = {
            each.name: each for each in definitions if passes(spec.tools, each.name)
        }
        self.prompts = content_of(offer.prompts, PROMPTS, alias)
        self.resources = content_of(offer.resources, RESOURCES, alias)
        self.templates = content_of(offer.templates, TEMPLATES, alias)
        self.skills = content_of(offer.skills, SKILLS, alias)


class UpstreamSource:
    """One server in one project."""

    kind: ServerKind = "upstream"

    def __init__(
        self,
        upstream: Upstream,
        alias: str,
        spec: ServerSpec,
        sessions: SessionUpstreams | None = None,
        names: ServerNames = NO_NAMES,
    ) -> None:
        self.name = alias
        self.identity = names.identity or identity(spec)
        self.server_names = names if names.identity else ServerNames(self.identity)
        self.spec = spec
        self.upstream = upstream
        self._sessions = sessions
        self._last: _OfferView | None = None

    @property
    def offer(self) -> Offer | None:
        """What the server offers, if known."""
        return self.upstream.offer

    @property
    def introduction(self) -> Introduction | None:
        """The server's introduction, if known."""
        offer = self.upstream.offer
        return Introduction(offer.capabilities, offer.server_info, offer.instructions) if offer is not None else None

    @property
    def status(self) -> UpstreamStatus:
        """The status of its upstream."""
        return self.upstream.status

    def tools(self) -> Sequence[Tool]:
        """Return the tools that pass the owner's filter."""
        view = self._view()
        return view.tools if view is not None else ()

    def problems(self) -> Sequence[Problem]:
        """Return the problems of its offer."""
        view = self._view()
        return view.problems if view is not None else ()

    def prompts(self) -> Sequence[ContentItem]:
        """Return its prompts."""
        view = self._view()
        return view.prompts if view is not None else ()

    def resources(self) -> Sequence[ContentItem]:
        """Return its resources."""
        view = self._view()
        return view.resources if view is not None else ()

    def templates(self) -> Sequence[ContentItem]:
        """Return its resource templates."""
        view = self._view()
        return view.templates if view is not None else ()

    async def skills(self) -> Sequence[ContentItem]:
        """Return its skills."""
        view = self._view()
        return view.skills if view is not None else ()

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Bind the arguments of a call. The server validates them."""
        view = self._view()
        definition = view.by_name.get(tool) if view is not None else None
        if definition is None:
            raise NotFound("tool.unknown", f"Server `{self.name}` has no tool `{tool}`.")
        headers = mcp_param_headers(definition.headers, arguments) if definition.headers else None
        return partial(self._run, {"name": tool, "arguments": arguments}, headers)

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Send a content request to the server."""
        upstream = self._upstream(context)
        match method:
            case "skills/get":
                await self.upstream.find_skill(str(params.get("uri")))
                return {}
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._subscribe(upstream, method, params, context)
            case "logging/setLevel":
                return await self._set_level(upstream, params, context)
            case _:
                return _writable(self.name, await _send(upstream, method, params, context))

    async def _run(self, params: JsonObject, headers: Mapping[str, str] | None, context: CallContext) -> CallResult:
        try:
            wire = _writable(self.name, await _send(self._upstream(context), "tools/call", params, context, headers))
        except ProtocolError as error:
            text = f"MCP error: {error.message}"
            fault = ProtocolFault(error.code, error.message, error.data)
            return CallResult(({"type": "text", "text": text},), is_error=True, fault=fault)
        except ServerFailed as error:
            return CallResult.error(f"MCP error: {error.message}")
        except ToolcribError as error:
            return CallResult.error(f"MCP error: {error.message} {error.hint or ''}".rstrip())
        result = CallResult.of_wire(wire)
        if result.is_error:
            self.upstream.returned_error(result)
        return result

    async def _subscribe(self, upstream: Upstream, method: str, params: JsonObject, context: CallContext) -> JsonObject:
        """Subscribe or unsubscribe. Only the first and the last subscriber of a resource reach the server."""
        uri: Json = params.get("uri")
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "`uri` must be a string.")
        exchange = await upstream.ready()
        change = upstream.subscribed.add if method == "resources/subscribe" else upstream.subscribed.remove
        if not change(uri, _subscriber(context)) or exchange.introduction.era == "modern":
            return {}
        try:
            return await exchange.request(method, params, context)
        except ProtocolError:
            upstream.subscribed.remove(uri, _subscriber(context))
            raise

    async def _set_level(self, upstream: Upstream, params: JsonObject, context: CallContext) -> JsonObject:
        """Set the log level. A shared server logs at the most verbose level; a modern one gets it with each request."""
        exchange = await upstream.ready()
        upstream.subscribed.set_level(_subscriber(context), str(params.get("level")))
        if exchange.introduction.era == "modern" or "logging" not in exchange.introduction.capabilities:
            return {}
        return await exchange.request("logging/setLevel", {**params, "level": upstream.subscribed.level}, context)

    def _upstream(self, context: CallContext) -> Upstream:
        client = context.client
        if self._sessions is None or client is None or client.session is None:
            return self.upstream
        if client.answers_by_retry and self.offer is not None and self.offer.era == "modern":
            return self.upstream  # each request carries its client and capabilities
        return self._sessions.of(client)

    def _view(self) -> _OfferView | None:
        offer = self.upstream.offer
        if offer is None:
            return None
        if self._last is None or self._last.offer is not offer:
            self._last = _OfferView(offer, self.name, self.spec, self.server_names)
        return self._last


async def _send(
    upstream: Upstream, method: str, params: JsonObject, context: CallContext, headers: Mapping[str, str] | None = None
) -> JsonObject:
    """Send a caller's request, connecting first if needed, and return its result unchanged.

    Raises `ProtocolError` if the server responds with an error, another `ToolcribError` if it cannot be reached.
    """
    exchange = upstream.exchange or await upstream.ready()
    try:
        return await exchange.request(method, params, context, headers)
    except ProtocolError:
        raise  # a response too, passed on unchanged
    except ToolcribError as failure:
        exchange = await upstream.reopened(failure, exchange)
    return await exchange.request(method, params, context, headers)


def _writable(name: str, result: JsonObject) -> JsonObject:
    """Return the result if it can be serialized: parsing accepts deeper nesting than serializing."""
    try:
        dumps(result)
    except TypeError:
        raise Unavailable("server.reply_invalid", f'Server "{name}" sent a reply that is nested too deep.') from None
    return result


def _subscriber(context: CallContext) -> str:
    client = context.client
    return client.session if client is not None and client.session is not None else context.principal.name
