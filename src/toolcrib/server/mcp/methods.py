"""The methods that the endpoint answers by itself, in both eras: calls, reads, prompts, completion and the small ones.

Each takes a request and gives the result as it goes on the wire. Errors that a server answered with are passed on where
a client can act on them; everything else that goes wrong with a tool is a result that the model reads.

Above: the endpoint. Below: the gate, and nothing past it. It must never answer with more than the face shows.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from toolcrib.errors import NotFound, ToolcribError
from toolcrib.gate import Gate
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    APPROVAL_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    KEY,
    META,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    SERVER_INFO_KEY,
    URL_ELICITATION_REQUIRED,
    Era,
)
from toolcrib.model.sources import ContentMethod, ProtocolError, ReportProgress
from toolcrib.model.tools import CallResult, Tool, ToolRef
from toolcrib.server.mcp.argument_headers import RepeatedArgument, check_repeated, repeated_arguments
from toolcrib.server.mcp.asking import LEVELS
from toolcrib.server.mcp.parking import Parking, opened
from toolcrib.server.mcp.request import Request
from toolcrib.server.mcp.rpc import RpcError
from toolcrib.server.mcp.seal import Seal, TooMuchState
from toolcrib.server.mcp.subscriptions import Holder, Subscriptions

logger = logging.getLogger(__name__)

CARRIED = b"toolcrib-carried"
"""Header of a request that came over a wire without headers, where there are none to repeat arguments in."""
STATE_HOLDS = 3_600.0
"""Seconds that a server's sealed state holds here; the server may set a shorter time of its own."""

_ACTED_ON = frozenset({MISSING_CAPABILITY, URL_ELICITATION_REQUIRED})
"""Errors of a server that a client answers with more than words to its model."""
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")
_ANNOTATED_KEPT = 10_000


InSession = Callable[[Principal, ToolRef, JsonObject, ReportProgress | None], Awaitable[CallResult]]
"""Calls a tool in the session that asks, which knows the call from its runtime."""


class Methods:
    """Answers requests by method."""

    def __init__(
        self, gate: Gate, seal: Seal, parking: Parking, subscriptions: Subscriptions, in_session: InSession | None
    ) -> None:
        self._gate = gate
        self._in_session = in_session
        self._seal = seal
        self._parking = parking
        self._subscriptions = subscriptions
        self._annotated: dict[ToolRef, tuple[Tool, tuple[RepeatedArgument, ...]]] = {}
        both: dict[str, Callable[[Request], Awaitable[JsonObject]]] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        legacy: dict[str, Callable[[Request], Awaitable[JsonObject]]] = {
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._by_era: dict[Era, dict[str, Callable[[Request], Awaitable[JsonObject]]]] = {
            "modern": both,
            "legacy": both | legacy,
        }

    def answers(self, era: Era, method: str) -> bool:
        """Whether this is one of ours."""
        return method in self._by_era[era]

    def answer(self, request: Request) -> Awaitable[JsonObject]:
        """The result of a request; raises `RpcError`, also when it is awaited."""
        if request.era == "modern" and "requestState" in request.message.params:
            content = opened(self._seal, request) or {}
            if "parked" in content:
                return self._parking.resume(content["parked"], request)
            request.state = content.get("upstream")
        return self._by_era[request.era][request.message.method](request)

    async def _call_tool(self, request: Request) -> JsonObject:
        """A refusal is a result the model can read, an unknown tool is an error of the protocol."""
        params = request.message.params
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "params.name must be a string.")
        if not is_object(arguments):
            raise RpcError(INVALID_PARAMS, "params.arguments must be an object.")
        target = request.face.target(request.principal, name, arguments)
        if target is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        if isinstance(target, CallResult):
            return self._result(request, target)
        ref, given = target
        tool, decision = self._gate.seen(request.principal, ref)
        if given is not arguments:
            name = arguments["ref"]  # called through another tool, which names it
        elif tool is not None and request.era == "modern":
            self._check_headers(request, tool, arguments)
        return self._result(request, await self._through_gate(request, tool, decision, given, name))

    async def _through_gate(
        self, request: Request, tool: Tool | None, decision: Decision, arguments: JsonObject, name: str
    ) -> CallResult:
        ref = decision.ref
        if request.principal.kind == "session" and self._in_session is not None and tool is not None:
            return await self._in_session(request.principal, ref, arguments, request.progress)
        # Python tools do not know clients, and to introduce one costs more than many of them do. Where a person may
        # have to be asked first, it can be the one behind the client.
        is_needed = decision.verdict == "ask" or decision.needs_arguments
        is_needed = is_needed or (tool is not None and tool.kind == "upstream")
        client = request.client(partial(self._parking.ask, request)) if is_needed else None
        handle: Json = request.message.meta.get(APPROVAL_KEY)
        if handle is not None and not isinstance(handle, str):
            raise RpcError(INVALID_PARAMS, f"params._meta.{APPROVAL_KEY} must be a string.")
        try:
            called = await self._gate.call(
                request.principal, ref, arguments, door="mcp", progress=request.progress, client=client, handle=handle
            )
        except ToolcribError as error:
            # A hidden tool is unknown here even to the owner, whose client would only show the name to its model.
            if isinstance(error, NotFound) or tool is None:
                raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}") from error
            logger.info("refused %s: %s", ref, error.message, extra={"code": error.code})
            return CallResult.error(f"{error.message} {error.hint or ''}".strip())
        return called.result

    def _check_headers(self, request: Request, tool: Tool, arguments: JsonObject) -> None:
        """Arguments that the tool wants repeated in headers have to stand there."""
        kept = self._annotated.get(tool.ref)
        if kept is None or kept[0] is not tool:
            if len(self._annotated) >= _ANNOTATED_KEPT:
                self._annotated.clear()
            kept = self._annotated[tool.ref] = (tool, repeated_arguments(tool.input_schema))
        if kept[1] and CARRIED not in request.headers:
            check_repeated(kept[1], arguments, request.headers)

    def _result(self, request: Request, result: CallResult) -> JsonObject:
        fault = result.fault
        if result.is_error and request.lacks is not None:
            raise request.lacks
        if fault is not None and (request.face.is_one_server or fault.code in _ACTED_ON):
            raise RpcError(fault.code, fault.message, fault.data)
        return self._on_the_wire(request, result.to_json())

    async def _read_resource(self, request: Request) -> JsonObject:
        uri = _text(request, "uri")
        server = request.face.reader(request.principal, uri)
        if server is None:
            raise _no_resource(request.era, uri)
        result = await self._ask_server(request, server, "resources/read", {})
        if request.era == "modern" and result.get("resultType", "complete") == "complete":
            # Whatever the server allows: who may read is decided here, for each asker anew.
            result = {"ttlMs": 0, **result, "cacheScope": "private"}
        return self._on_the_wire(request, result)

    async def _get_prompt(self, request: Request) -> JsonObject:
        name = _text(request, "name")
        ref = request.face.prompt(request.principal, name)
        if ref is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._on_the_wire(
            request, await self._ask_server(request, ref.server, "prompts/get", {"name": ref.tool})
        )

    async def _complete(self, request: Request) -> JsonObject:
        ref: Json = request.message.params.get("ref")
        kind, name, uri = (ref.get("type"), ref.get("name"), ref.get("uri")) if is_object(ref) else (None, None, None)
        if kind == "ref/prompt" and isinstance(name, str):
            if (prompt := request.face.prompt(request.principal, name)) is not None:
                changed = {"ref": {**ref, "name": prompt.tool}}
                result = await self._ask_server(request, prompt.server, "completion/complete", changed)
                return self._on_the_wire(request, result)
        elif kind == "ref/resource" and isinstance(uri, str):
            if (server := request.face.reader(request.principal, uri)) is not None:
                result = await self._ask_server(request, server, "completion/complete", {})
                return self._on_the_wire(request, result)
        else:
            raise RpcError(INVALID_PARAMS, "params.ref must name a prompt or a resource.")
        raise RpcError(INVALID_PARAMS, f"Unknown reference: {name or uri}")

    async def _set_level(self, request: Request) -> JsonObject:
        level = _text(request, "level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"params.level must be one of {', '.join(LEVELS)}.")
        if request.session is not None:
            request.session.log_level = level
        face = request.face
        # Of many servers each is told with every call; one alone also learns what to log in between.
        if face.is_one_server and "logging" in face.capabilities(request.principal):
            server = face.reader(request.principal, "")
            try:
                await self._ask_server(request, server or "", "logging/setLevel", {})
            except RpcError as error:
                logger.info("%s did not take a log level: %s", server, error.message)
        return {}

    async def _subscribe(self, request: Request) -> JsonObject:
        uri = _text(request, "uri")
        server = request.face.reader(request.principal, uri)
        if server is None or request.session is None:
            raise _no_resource(request.era, uri)
        await self._ask_server(request, server, "resources/subscribe", {})
        self._subscriptions.add(server, uri, Holder(request.session.id))
        return {}

    async def _unsubscribe(self, request: Request) -> JsonObject:
        uri = _text(request, "uri")
        server = request.face.reader(request.principal, uri)
        if server is None or request.session is None:
            raise _no_resource(request.era, uri)
        if self._subscriptions.drop(server, uri, Holder(request.session.id)):
            await self._ask_server(request, server, "resources/unsubscribe", {})
        return {}

    async def _ask_server(
        self, request: Request, server: str, method: ContentMethod, changed: JsonObject
    ) -> JsonObject:
        """What the server answers, by its own names; every failure is an error of the protocol."""
        params = {key: value for key, value in request.message.params.items() if key not in _OURS} | changed
        try:
            return dict(
                await self._gate.request(
                    request.principal,
                    server,
                    method,
                    params,
                    door="mcp",
                    client=request.client(partial(self._parking.ask, request)),
                    progress=request.progress,
                )
            )
        except ProtocolError as error:
            if request.lacks is not None:
                raise request.lacks from error
            raise RpcError(_code(request.era, method, error), error.message, error.data) from error
        except ToolcribError as error:
            logger.info("refused %s of %s: %s", method, server, error.message, extra={"code": error.code})
            if method in ("resources/read", "resources/subscribe") and isinstance(error, NotFound):
                raise _no_resource(request.era, params["uri"]) from error
            code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
            raise RpcError(code, f"MCP error: {error.message} {error.hint or ''}".strip()) from error

    def _on_the_wire(self, request: Request, result: JsonObject) -> JsonObject:
        """A result in the words of the client's era."""
        if request.era == "legacy":
            return _legacy(result) if META in result or "resultType" in result else result
        if result.setdefault("resultType", "complete") == "input_required":
            self._seal_state(request, result)
        info = request.face.server_info(request.principal)
        meta: Json = result.get(META)
        result[META] = {**meta, SERVER_INFO_KEY: info} if is_object(meta) else {SERVER_INFO_KEY: info}
        return result

    def _seal_state(self, request: Request, result: JsonObject) -> None:
        """The state that a server wants back with its answers is sealed for this request."""
        state: Json = result.get("requestState")
        if state is None:
            return
        try:
            result["requestState"] = self._seal.close({"upstream": state}, request.bound_to, seconds=STATE_HOLDS)
        except TooMuchState:
            raise RpcError(INTERNAL_ERROR, "MCP error: The server wants a client to carry too much state.") from None


_OURS = frozenset({META, "inputResponses", "requestState"})
"""Params that travel beside a request, in what is known of its client."""


def _text(request: Request, name: str) -> str:
    value: Json = request.message.params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be a string.")
    return value


def _no_resource(era: Era, uri: str) -> RpcError:
    code = RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS
    return RpcError(code, f"Resource not found: {uri}", {"uri": uri})


def _code(era: Era, method: ContentMethod, error: ProtocolError) -> int:
    """The code of a server's error in the client's era: the two say differently that there is no such resource."""
    if era == "modern" and error.code == RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    says_which = is_object(error.data) and "uri" in error.data
    if era == "legacy" and method == "resources/read" and error.code == INVALID_PARAMS and says_which:
        return RESOURCE_NOT_FOUND
    return error.code


def _legacy(result: JsonObject) -> JsonObject:
    """A result without what only the modern era knows."""
    plain = {key: value for key, value in result.items() if key not in _MODERN_ONLY}
    meta: Json = plain.get(META)
    if is_object(meta):
        kept = {key: value for key, value in meta.items() if not key.startswith(KEY)}
        plain = {**plain, META: kept} if kept else {key: value for key, value in plain.items() if key != META}
    return plain
