"""The methods that the endpoint answers itself in both eras: calls, reads, prompts, completion and a few small ones.

Each takes a request and returns the wire format of its result. Upstream errors are forwarded if a client can act on
them. Any other failure of a tool is a result that the model reads.

Must never answer with more than the view shows, or bypass the gate.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from toolcrib.gate.gate import Gate
from toolcrib.gate.programs.code_tools import CRIB, ProgramRequest
from toolcrib.gate.programs.planned_call import PROGRAM
from toolcrib.gate.programs.runner import ProgramRun
from toolcrib.gate.results.fitting import ResultBudget, is_whole
from toolcrib.gate.results.kept import URI
from toolcrib.gate.results.reading import READ, TOOL, read_on
from toolcrib.model.approvals import with_edited
from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import Message, RpcError, trace_of
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    APPROVAL_KEY,
    CARRIED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    KEY,
    LOG_LEVELS,
    META,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    SERVER_INFO_KEY,
    URL_ELICITATION_REQUIRED,
    Era,
)
from toolcrib.model.sources import ContentMethod, ProtocolError, ReportProgress
from toolcrib.model.tools import CallResult, Tool, ToolRef
from toolcrib.web.mcp.argument_headers import RepeatedArgument, check_repeated, repeated_arguments
from toolcrib.web.mcp.parked_calls import ParkedCalls, open_state
from toolcrib.web.mcp.request import McpRequest
from toolcrib.web.mcp.sealed_state import StateSeal, TooMuchState
from toolcrib.web.mcp.skills import Ready, SkillMethods, with_uri
from toolcrib.web.mcp.subscriptions import WATCHED_BY_ONE, Holder, Subscriptions
from toolcrib.web.mcp.tasks import McpTasks
from toolcrib.web.mcp.views import Target

logger = logging.getLogger(__name__)

_CARRIED = CARRIED.encode()
STATE_HOLDS = 3_600.0
"""Seconds that a server's sealed state is valid here; the server may set a shorter time."""

_ACTED_ON = frozenset({MISSING_CAPABILITY, URL_ELICITATION_REQUIRED})
"""Upstream errors that a client handles itself instead of showing them to the model."""
_SAID_OF_ABSENT = frozenset({"tool.changed", "server.disabled"})
"""Reasons for a missing tool that are reported to the model, so that it can inform the user."""
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")
_ANNOTATED_KEPT = 10_000
_READ_REF = ToolRef(READ, "")
_PROGRAM_TOOL = Tool(PROGRAM, "", {})
_LINKS_SINCE = b"2025-06-18"
"""The first protocol version with links to resources in results."""


InSession = Callable[[Principal, ToolRef, JsonObject, ReportProgress | None], Awaitable[CallResult]]
"""Calls a tool within an agent's session, which knows the call from its runtime."""


class Methods:
    """Answers requests by method."""

    def __init__(
        self,
        gate: Gate,
        seal: StateSeal,
        parking: ParkedCalls,
        subscriptions: Subscriptions,
        in_session: InSession | None,
        announce: Callable[[], None] = lambda: None,
        whole_results: Sequence[str] = (),
        tasks: McpTasks | None = None,
        ready: Ready | None = None,
    ) -> None:
        """`announce` informs clients of changed lists. Results of `whole_results` (patterns) are never shortened.

        `ready` connects a server and judges what it offers.
        """
        self._gate = gate
        self._whole_results = whole_results
        self._announce = announce
        self._in_session = in_session
        self._seal = seal
        self._parking = parking
        self._subscriptions = subscriptions
        self._skills = SkillMethods(gate, ready)
        self._annotated: dict[ToolRef, tuple[Tool, tuple[RepeatedArgument, ...]]] = {}
        both: dict[str, Callable[[McpRequest], Awaitable[JsonObject]]] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "skills/list": self._list_skills,
            "skills/get": self._get_skill,
        }
        legacy: dict[str, Callable[[McpRequest], Awaitable[JsonObject]]] = {
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        known_tasks = tasks or McpTasks(None, "")
        modern: dict[str, Callable[[McpRequest], Awaitable[JsonObject]]] = {
            "tasks/get": known_tasks.get,
            "tasks/update": known_tasks.update,
            "tasks/cancel": known_tasks.cancel,
            "subscriptions/listen": known_tasks.listen,
        }
        self._by_era: dict[Era, dict[str, Callable[[McpRequest], Awaitable[JsonObject]]]] = {
            "modern": both | modern,
            "legacy": both | legacy,
        }

    def answers(self, era: Era, message: Message) -> bool:
        """Return whether the endpoint answers this request itself. Of the subscriptions, it serves those to tasks."""
        if message.method == "subscriptions/listen":
            wanted: Json = message.params.get("notifications")
            return era == "modern" and is_object(wanted) and "taskIds" in wanted
        return message.method in self._by_era[era]

    def answer(self, request: McpRequest) -> Awaitable[JsonObject]:
        """Return an awaitable for the result of a request. Raises `RpcError`, immediately or when awaited."""
        if request.era == "modern" and "requestState" in request.message.params:
            content = open_state(self._seal, request) or {}
            if "parked" in content:
                return self._parking.resume(content["parked"], request)
            request.state = content.get("upstream")
        return self._by_era[request.era][request.message.method](request)

    async def _call_tool(self, request: McpRequest) -> JsonObject:
        """Call a tool. A refusal is a result that the model can read; an unknown tool is a protocol error."""
        name, arguments = _named_call(request)
        if name == READ and not request.mcp_view.is_one_server:
            return self._result(request, await self._read_on(request, arguments))
        target = self._session_target(request, name, arguments) or request.mcp_view.target(
            request.principal, name, arguments
        )
        if target is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        if isinstance(target, ProgramRequest):
            target = partial(self._run_program, request, target)
        if callable(target):
            target = await target()
        if isinstance(target, CallResult):
            return self._result(request, target)
        ref, given = target
        if given is not arguments:
            name = arguments["ref"]  # called through `call_tool`, which names it
            if ref == _READ_REF:
                return self._result(request, await self._read_on(request, given))
        tool, decision = self._gate.find_visible(request.principal, ref)
        if tool is None and await self._gate.look_again():
            tool, decision = self._gate.find_visible(request.principal, ref)
        if given is arguments and tool is not None and request.era == "modern":
            self._check_headers(request, tool, arguments)
        return self._result(request, await self._through_gate(request, tool, decision, given, name))

    def _session_target(self, request: McpRequest, name: str, arguments: JsonObject) -> Target:
        """Return the call of a tool of the view itself by an agent's session, which knows the call."""
        if self._in_session is None or request.principal.kind != "session" or name not in request.mcp_view.own_tools:
            return None
        return partial(self._in_session, request.principal, ToolRef(CRIB, name), arguments, request.progress)

    async def _through_gate(
        self, request: McpRequest, tool: Tool | None, decision: Decision, arguments: JsonObject, name: str
    ) -> CallResult:
        ref = decision.ref
        if request.principal.kind == "session" and self._in_session is not None and tool is not None:
            return await self._in_session(request.principal, ref, arguments, request.progress)
        # A `Client` costs more than many Python tools, which do not use one. It is needed for upstream tools, and where
        # the user behind the client may have to approve the call.
        is_needed = decision.verdict == "ask" or decision.needs_arguments
        is_needed = is_needed or (tool is not None and tool.kind == "upstream")
        client = request.client(partial(self._parking.ask, request)) if is_needed else None
        handle: Json = request.message.meta.get(APPROVAL_KEY)
        if handle is not None and not isinstance(handle, str):
            raise RpcError(INVALID_PARAMS, f"params._meta.{APPROVAL_KEY} must be a string.")
        try:
            called = await self._gate.call(
                request.principal,
                ref,
                arguments,
                door="mcp",
                progress=request.progress,
                client=client,
                handle=handle,
                budget=self._budget(request, ref),
                trace=trace_of(request.headers, request.message.meta),
            )
        except ToolcribError as error:
            # A hidden tool is unknown here even to the owner, whose client would only show the name to its model.
            if isinstance(error, NotFound) or (tool is None and error.code not in _SAID_OF_ABSENT):
                raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}") from error
            logger.info("refused %s: %s", ref, error.message, extra={"code": error.code})
            return CallResult.error(f"{error.message} {error.hint or ''}".strip())
        if called.is_shortened:
            self._announce()
        return called.result if called.edited is None else with_edited(called.result, called.edited)

    async def _run_program(self, request: McpRequest, program: ProgramRequest) -> CallResult:
        """Run a program whose calls go through the gate, and fit its output into the client's budget."""
        run = ProgramRun(
            self._gate,
            self._gate.interpreter,
            request.principal,
            program.code,
            door="mcp",
            client=request.client(partial(self._parking.ask, request)),
            progress=request.progress,
        )
        try:
            result = await run.run(dry_run=program.dry_run)
        except ToolcribError as error:
            return CallResult.error(f"{error.message} {error.hint or ''}".strip())
        budget = self._budget(request, PROGRAM)
        if budget is None:
            return result
        fitted, digest = budget.fit(self._gate.results, request.principal, _PROGRAM_TOOL, result)
        if digest is not None:
            await self._gate.results.share()
            self._announce()
        return fitted

    def _budget(self, request: McpRequest, ref: ToolRef) -> ResultBudget | None:
        """Return what the client may receive, or None if it receives everything."""
        if not request.result_tokens or is_whole(ref, self._whole_results):
            return None
        takes_links = request.headers.get(b"mcp-protocol-version", b"") >= _LINKS_SINCE
        return ResultBudget(request.result_tokens, request.mcp_view.how_to_read, takes_links)

    async def _read_on(self, request: McpRequest, arguments: JsonObject) -> CallResult:
        """Read on in a shortened result; within a session, as a call that the session knows."""
        if request.principal.kind == "session" and self._in_session is not None:
            return await self._in_session(request.principal, TOOL.ref, arguments, request.progress)
        return await read_on(self._gate.results, request.principal, arguments)

    def _check_headers(self, request: McpRequest, tool: Tool, arguments: JsonObject) -> None:
        """Raise unless the headers repeat the arguments that the tool's schema marks."""
        kept = self._annotated.get(tool.ref)
        if kept is None or kept[0] is not tool:
            if len(self._annotated) >= _ANNOTATED_KEPT:
                self._annotated.clear()
            kept = self._annotated[tool.ref] = (tool, repeated_arguments(tool.input_schema))
        if kept[1] and _CARRIED not in request.headers:
            check_repeated(kept[1], arguments, request.headers)

    def _result(self, request: McpRequest, result: CallResult) -> JsonObject:
        fault = result.fault
        if result.is_error and request.missing_capability is not None:
            raise request.missing_capability
        if fault is not None and (request.mcp_view.is_one_server or fault.code in _ACTED_ON):
            raise RpcError(fault.code, fault.message, fault.data)
        return self._on_the_wire(request, result.to_json())

    async def _read_resource(self, request: McpRequest) -> JsonObject:
        uri = _text(request, "uri")
        if uri.startswith(URI):
            await self._gate.results.fetch(request.principal, uri.removeprefix(URI).partition("/")[0])
        if uri.startswith(URI) and (kept := self._gate.results.resource(request.principal, uri)) is not None:
            private = {"ttlMs": 0, "cacheScope": "private"} if request.era == "modern" else {}
            return self._on_the_wire(request, {"contents": [kept], **private})
        result = await self._skills.read(request, uri, partial(self._perform, request))
        if result is None:
            result = await self._read_plainly(request, uri)
        if request.era == "modern" and result.get("resultType", "complete") == "complete":
            # Read access is decided here for each principal, so the result must not be shared, whatever the server
            # allows.
            result = {"ttlMs": 0, **result, "cacheScope": "private"}
        return self._on_the_wire(request, result)

    async def _read_plainly(self, request: McpRequest, uri: str) -> JsonObject:
        """Read a resource that belongs to no skill. A UI resource may have another URI at its server."""
        app = request.mcp_view.app_resource(request.principal, uri)
        if app is not None and app[1] != uri:
            return with_uri(await self._ask_server(request, app[0], "resources/read", {"uri": app[1]}), app[1], uri)
        server = request.mcp_view.reader(request.principal, uri)
        if server is None:
            raise _no_resource(request.era, uri)
        return await self._ask_server(request, server, "resources/read", {})

    async def _list_skills(self, request: McpRequest) -> JsonObject:
        return self._on_the_wire(request, await self._skills.list_page(request))

    async def _get_skill(self, request: McpRequest) -> JsonObject:
        return self._on_the_wire(request, await self._skills.get(request, partial(self._perform, request)))

    async def _get_prompt(self, request: McpRequest) -> JsonObject:
        name = _text(request, "name")
        ref = request.mcp_view.prompt(request.principal, name)
        if ref is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._on_the_wire(
            request, await self._ask_server(request, ref.server, "prompts/get", {"name": ref.tool})
        )

    async def _complete(self, request: McpRequest) -> JsonObject:
        ref: Json = request.message.params.get("ref")
        kind, name, uri = (ref.get("type"), ref.get("name"), ref.get("uri")) if is_object(ref) else (None, None, None)
        if kind == "ref/prompt" and isinstance(name, str):
            if (prompt := request.mcp_view.prompt(request.principal, name)) is not None:
                changed = {"ref": {**ref, "name": prompt.tool}}
                result = await self._ask_server(request, prompt.server, "completion/complete", changed)
                return self._on_the_wire(request, result)
        elif kind == "ref/resource" and isinstance(uri, str):
            if (server := request.mcp_view.reader(request.principal, uri)) is not None:
                result = await self._ask_server(request, server, "completion/complete", {})
                return self._on_the_wire(request, result)
        else:
            raise RpcError(INVALID_PARAMS, "params.ref must name a prompt or a resource.")
        raise RpcError(INVALID_PARAMS, f"Unknown reference: {name or uri}")

    async def _set_level(self, request: McpRequest) -> JsonObject:
        level = _text(request, "level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"params.level must be one of {', '.join(LOG_LEVELS)}.")
        if request.session is not None:
            request.session.log_level = level
        mcp_view = request.mcp_view
        # With many servers, each call carries the level. A single server also needs it for messages between calls.
        if mcp_view.is_one_server and "logging" in mcp_view.capabilities(request.principal):
            server = mcp_view.reader(request.principal, "")
            try:
                await self._ask_server(request, server or "", "logging/setLevel", {})
            except RpcError as error:
                logger.info("%s rejected a log level: %s", server, error.message)
        return {}

    async def _subscribe(self, request: McpRequest) -> JsonObject:
        uri = _text(request, "uri")
        server = request.mcp_view.reader(request.principal, uri)
        if server is None or request.session is None:
            raise _no_resource(request.era, uri)
        if self._subscriptions.count(Holder(request.session.id)) >= WATCHED_BY_ONE:
            raise RpcError(INTERNAL_ERROR, f"A session may subscribe to at most {WATCHED_BY_ONE} resources.")
        holder = Holder(request.session.id)
        # Before the server is asked: it may report an update before its answer is handled here.
        is_new = self._subscriptions.add(server, uri, holder)
        try:
            await self._ask_server(request, server, "resources/subscribe", {})
        except BaseException:
            if is_new:
                self._subscriptions.drop(server, uri, holder)
            raise
        return {}

    async def _unsubscribe(self, request: McpRequest) -> JsonObject:
        uri = _text(request, "uri")
        server = request.mcp_view.reader(request.principal, uri)
        if server is None or request.session is None:
            raise _no_resource(request.era, uri)
        if self._subscriptions.drop(server, uri, Holder(request.session.id)):
            await self._ask_server(request, server, "resources/unsubscribe", {})
        return {}

    async def _ask_server(
        self, request: McpRequest, server: str, method: ContentMethod, changed: JsonObject
    ) -> JsonObject:
        """Return the server's result. Every failure is raised as `RpcError`."""

        def ask(params: JsonObject, **context: Any) -> Awaitable[JsonObject]:
            return self._gate.request(request.principal, server, method, params, door="mcp", **context)

        return await self._perform(request, method, ask, **changed)

    async def _perform(
        self, request: McpRequest, method: ContentMethod, ask: Callable[..., Awaitable[JsonObject]], **changed: Json
    ) -> JsonObject:
        """Return the result of `ask` for the params of the request. Every failure is raised as `RpcError`."""
        params = {key: value for key, value in request.message.params.items() if key not in _OURS} | changed
        client = request.client(partial(self._parking.ask, request))
        trace = trace_of(request.headers, request.message.meta)
        try:
            return dict(await ask(params, client=client, progress=request.progress, trace=trace))
        except ProtocolError as error:
            if request.missing_capability is not None:
                raise request.missing_capability from error
            raise RpcError(_code(request.era, method, error), error.message, error.data) from error
        except ToolcribError as error:
            logger.info("refused %s: %s", method, error.message, extra={"code": error.code})
            if method in ("resources/read", "resources/subscribe") and isinstance(error, NotFound):
                raise _no_resource(request.era, params["uri"]) from error
            code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
            raise RpcError(code, f"MCP error: {error.message} {error.hint or ''}".strip()) from error

    def _on_the_wire(self, request: McpRequest, result: JsonObject) -> JsonObject:
        """Return the result in the format of the client's era."""
        if request.era == "legacy":
            return _legacy(result) if META in result or "resultType" in result else result
        if result.setdefault("resultType", "complete") == "input_required":
            self._seal_state(request, result)
        info = request.mcp_view.server_info(request.principal)
        meta: Json = result.get(META)
        result[META] = {**meta, SERVER_INFO_KEY: info} if is_object(meta) else {SERVER_INFO_KEY: info}
        return result

    def _seal_state(self, request: McpRequest, result: JsonObject) -> None:
        """Seal the state that a server wants back with the client's answers, bound to this request."""
        state: Json = result.get("requestState")
        if state is None:
            return
        try:
            result["requestState"] = self._seal.close({"upstream": state}, request.bound_to, seconds=STATE_HOLDS)
        except TooMuchState:
            raise RpcError(INTERNAL_ERROR, "MCP error: The state returned by the server is too large.") from None


_OURS = frozenset({META, "inputResponses", "requestState"})
"""Params that are passed on as part of `Client`, not with the request."""


def _named_call(request: McpRequest) -> tuple[str, JsonObject]:
    """Return the tool's name and the arguments of a call."""
    params = request.message.params
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str):
        raise RpcError(INVALID_PARAMS, "params.name must be a string.")
    if not is_object(arguments):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object.")
    return name, arguments


def _text(request: McpRequest, name: str) -> str:
    value: Json = request.message.params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be a string.")
    return value


def _no_resource(era: Era, uri: str) -> RpcError:
    code = RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS
    return RpcError(code, f"Resource not found: {uri}", {"uri": uri})


def _code(era: Era, method: ContentMethod, error: ProtocolError) -> int:
    """Return a server's error code in the client's era. The eras use different codes for a missing resource."""
    if era == "modern" and error.code == RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    says_which = is_object(error.data) and "uri" in error.data
    if era == "legacy" and method == "resources/read" and error.code == INVALID_PARAMS and says_which:
        return RESOURCE_NOT_FOUND
    return error.code


def _legacy(result: JsonObject) -> JsonObject:
    """Return the result without the members of the modern era."""
    plain = {key: value for key, value in result.items() if key not in _MODERN_ONLY}
    meta: Json = plain.get(META)
    if is_object(meta):
        kept = {key: value for key, value in meta.items() if not key.startswith(KEY)}
        plain = {**plain, META: kept} if kept else {key: value for key, value in plain.items() if key != META}
    return plain
