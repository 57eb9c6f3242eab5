"""An upstream server as a source of the catalog: its tools, prompts and resources under the name it has in one place.

Several sources may share one link: a server can have another name, filter or time-out where it is seen from another
directory. Arguments are not checked against the server's schema here; the server does that itself.

Above: the catalog and the gate. Below: `link`, `offer`. It must never let a failure of the server out of a call as
anything but a result that says so; a cancelled call stays cancelled.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import orjson

from toolcrib.config.identity import identity
from toolcrib.connect.definitions import Definition, mcp_param_headers
from toolcrib.connect.link import Link
from toolcrib.connect.offer import PROMPTS, RESOURCES, TEMPLATES, Offer, content_of, passes, tools_of
from toolcrib.connect.process import ServerFailed
from toolcrib.connect.sessions import SessionLinks
from toolcrib.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.links import LinkStatus
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import INVALID_PARAMS
from toolcrib.model.servers import ServerSpec
from toolcrib.model.sources import CallContext, ContentMethod, ProtocolError, RunCall
from toolcrib.model.tools import CallResult, ContentItem, Fault, ServerKind, Tool


class _Shown:
    """One offer as this source shows it."""

    def __init__(self, offer: Offer, alias: str, spec: ServerSpec) -> None:
        self.offer = offer
        timeout = spec.timeout_ms / 1000 if spec.timeout_ms else None
        self.tools, self.problems = tools_of(offer, alias, spec.tools, timeout)
        definitions, _ = offer.judged
        self.by_name: Mapping[str, Definition] = {
            each.name: each for each in definitions if passes(spec.tools, each.name)
        }
        self.prompts = content_of(offer.prompts, PROMPTS, alias)
        self.resources = content_of(offer.resources, RESOURCES, alias)
        self.templates = content_of(offer.templates, TEMPLATES, alias)


class UpstreamSource:
    """One server in one place."""

    kind: ServerKind = "upstream"

    def __init__(self, link: Link, alias: str, spec: ServerSpec, sessions: SessionLinks | None = None) -> None:
        self.name = alias
        self.identity = identity(spec)
        self.spec = spec
        self.link = link
        self._sessions = sessions
        self._last: _Shown | None = None

    @property
    def offer(self) -> Offer | None:
        """What the server offers, as far as it is known."""
        return self.link.offer

    @property
    def status(self) -> LinkStatus:
        """Where its link stands."""
        return self.link.status

    def tools(self) -> Sequence[Tool]:
        """The tools that its owner lets through."""
        shown = self._shown()
        return shown.tools if shown is not None else ()

    def problems(self) -> Sequence[Problem]:
        """What could not be used of its offer."""
        shown = self._shown()
        return shown.problems if shown is not None else ()

    def prompts(self) -> Sequence[ContentItem]:
        """Its prompts."""
        shown = self._shown()
        return shown.prompts if shown is not None else ()

    def resources(self) -> Sequence[ContentItem]:
        """Its resources."""
        shown = self._shown()
        return shown.resources if shown is not None else ()

    def templates(self) -> Sequence[ContentItem]:
        """Its templates of resources."""
        shown = self._shown()
        return shown.templates if shown is not None else ()

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Bind the arguments; whether they fit is for the server to say."""
        shown = self._shown()
        definition = shown.by_name.get(tool) if shown is not None else None
        if definition is None:
            raise NotFound("tool.unknown", f"Server `{self.name}` has no tool `{tool}`.")
        headers = mcp_param_headers(definition.headers, arguments) if definition.headers else None
        return partial(self._run, {"name": tool, "arguments": arguments}, headers)

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Ask the server for content."""
        link = self._link(context)
        match method:
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._subscribe(link, method, params, context)
            case "logging/setLevel":
                return await self._set_level(link, params, context)
            case _:
                return _writable(self.name, await link.request(method, params, context))

    async def _run(self, params: JsonObject, headers: Mapping[str, str] | None, context: CallContext) -> CallResult:
        try:
            wire = _writable(self.name, await self._link(context).request("tools/call", params, context, headers))
        except ProtocolError as error:
            text = f"MCP error: {error.message}"
            fault = Fault(error.code, error.message, error.data)
            return CallResult(({"type": "text", "text": text},), is_error=True, fault=fault)
        except ServerFailed as error:
            return CallResult.error(f"MCP error: {error.message}")
        except ToolcribError as error:
            return CallResult.error(f"MCP error: {error.message} {error.hint or ''}".rstrip())
        return CallResult.of_wire(wire)

    async def _subscribe(self, link: Link, method: str, params: JsonObject, context: CallContext) -> JsonObject:
        """The server is told when the first one wants to hear of a resource, and when nobody does any more."""
        uri: Json = params.get("uri")
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "`uri` is no text.")
        exchange = await link.ready()
        change = link.wishes.add if method == "resources/subscribe" else link.wishes.remove
        if not change(uri, _who(context)) or exchange.greeting.era == "modern":
            return {}
        try:
            return await exchange.request(method, params, context)
        except ProtocolError:
            link.wishes.remove(uri, _who(context))
            raise

    async def _set_level(self, link: Link, params: JsonObject, context: CallContext) -> JsonObject:
        """A shared server logs for the one who wants most; a modern one is told with each request."""
        exchange = await link.ready()
        link.wishes.set_level(_who(context), str(params.get("level")))
        if exchange.greeting.era == "modern" or "logging" not in exchange.greeting.capabilities:
            return {}
        return await exchange.request("logging/setLevel", {**params, "level": link.wishes.level}, context)

    def _link(self, context: CallContext) -> Link:
        client = context.client
        if self._sessions is None or client is None or client.session is None:
            return self.link
        if client.answers_by_retry and self.offer is not None and self.offer.era == "modern":
            return self.link  # each request says by itself who asks and what can be asked back
        return self._sessions.of(client)

    def _shown(self) -> _Shown | None:
        offer = self.link.offer
        if offer is None:
            return None
        if self._last is None or self._last.offer is not offer:
            self._last = _Shown(offer, self.name, self.spec)
        return self._last


def _writable(name: str, result: JsonObject) -> JsonObject:
    """The result, if it can be passed on: more deeply nested JSON can be read than written."""
    try:
        orjson.dumps(result)
    except TypeError:
        raise Unavailable("server.reply_invalid", f'Server "{name}" gave a reply that is nested too deep.') from None
    return result


def _who(context: CallContext) -> str:
    client = context.client
    return client.session if client is not None and client.session is not None else context.principal.name
