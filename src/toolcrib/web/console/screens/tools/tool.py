"""One tool: definition, a form to call it, the result, and the equivalent CLI and curl commands.

A call runs as the owner and goes through the gate like any other: it is recorded and may be denied.
"""

import base64
import shlex
from functools import partial
from http import HTTPStatus
from typing import Final

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.audit.statistics import CallFilter
from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.model.apps import app_uri
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject, dumps, is_object, loads
from toolcrib.model.principals import Principal
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.web.console import contents
from toolcrib.web.console import schema_forms as forms
from toolcrib.web.console.calls import RunningCalls
from toolcrib.web.console.responses import Console, ScreenContent, error_json, route
from toolcrib.web.console.screens.access.reach import users_of
from toolcrib.web.console.screens.tools.list import (
    KINDS,
    kind_of,
    pending_changes,
    ref_of,
    tool_address,
    unaccepted_hash,
)
from toolcrib.web.tool_shortening import shortened_form

_ROOT: Final = ""
"""Path of the form's root, which holds the JSON in JSON mode."""
_WHOLE: Final[JsonObject] = {}
"""The schema of a form that is one JSON field."""
_NO_RESULT: Final[JsonObject] = {"result": None, "failure": None, "stopped": False, "app": None}


def routes(console: Console) -> list[Route]:
    """Return the routes; must come after all others below `/tools`, because tool names may contain slashes."""
    screen = ToolScreen(console)
    return [
        route("/tools/{server}/{tool:path}/call", screen.call, "POST"),
        route("/tools/{server}/{tool:path}", screen.show),
        route("/calls/{number}", screen.running),
        route("/calls/{number}/stop", screen.stop, "POST"),
    ]


class ToolScreen:
    """One tool."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._calls = RunningCalls()

    async def show(self, request: Request) -> Response:
        """Show the tool with an empty form, or filled with the arguments of the URL."""
        principal, ref = await self._console.local_principal(request), ref_of(request)
        tool, changes = await self._find(principal, ref)
        if tool is None:
            value: JsonObject = {"ref": str(ref), "server": ref.server, "changes": changes}
            return await self._console.respond(request, ScreenContent("tools", str(ref), "tool_held.html", value))
        given = _object(request.query_params.get("arguments", ""))
        filled = forms.filled_with(given) if given is not None else {}
        form = forms.build(tool.input_schema, filled)
        mode = "json" if form.kind != "object" or request.query_params.get("mode") == "json" else "form"
        return await self._respond(request, tool, form, given or {}, mode, _NO_RESULT, changes)

    async def call(self, request: Request) -> Response:
        """Call the tool; or only re-render the form, with a field added or in the other mode."""
        principal, ref = await self._console.local_principal(request), ref_of(request)
        await self._console.crib.ready(principal, ref.server)
        tool = self._console.crib.gate.find(principal, ref)
        async with request.form() as sent:
            filled = await _submitted_values(sent)
        form = forms.build(_WHOLE if sent.get("mode") == "json" else tool.input_schema, filled)
        arguments = forms.read(form)
        mode, wrong, done = str(sent.get("mode", "form")), dict(arguments.wrong), _NO_RESULT
        if "turn" in sent:
            mode, form, wrong = _switch_mode(tool, mode, arguments)
        elif sent.get("do") != "call":
            wrong = {}
        elif tool.marks.destructive and "sure" not in sent:
            wrong["sure"] = "Confirm to call this tool."
        elif not wrong:
            work = partial(self._call, principal, tool, arguments.value)
            ended = await self._calls.wait(request, str(sent.get("call", "")), work)
            if ended == "left":
                return _nothing()  # the page is gone
            done = _NO_RESULT | {"stopped": True} if ended == "stopped" else ended
        return await self._respond(request, tool, form, arguments.value, mode, done, [], wrong)

    async def running(self, request: Request) -> Response:
        """Return the progress of a call in flight, or 204."""
        running = self._calls.find(request.path_params["number"])
        if running is None:
            return _nothing()
        shown = ScreenContent("tools", "Call", "call_runs.html", running.to_json(), "parts/call_runs.html")
        return await self._console.respond(request, shown)

    async def stop(self, request: Request) -> Response:
        """Cancel a call; the waiting page shows it as stopped."""
        running = self._calls.find(request.path_params["number"])
        if running is not None:
            running.end("stopped")
        return _nothing()

    async def _call(
        self, principal: Principal, tool: Tool, arguments: JsonObject, progress: ReportProgress
    ) -> JsonObject:
        gate = self._console.crib.gate
        try:
            called = await gate.call(principal, tool.ref, arguments, door="console", progress=progress)
        except ToolcribError as error:
            return _NO_RESULT | {"failure": error_json(error)}
        result: JsonObject = {"isError": called.result.is_error, "content": list(called.result.content)}
        if called.result.has_structured:
            result["structuredContent"] = called.result.structured_content
        result |= {"durationMs": called.duration_ms, "auditId": called.audit_id}
        view = self._console.apps.open(principal, tool, arguments, called.result.to_json())
        return _NO_RESULT | {"result": result, "app": view.id if view is not None else None}

    async def _respond(
        self,
        request: Request,
        tool: Tool,
        form: forms.Field,
        arguments: JsonObject,
        mode: str,
        done: JsonObject,
        changes: list[JsonObject],
        wrong: JsonObject | None = None,
    ) -> Response:
        principal = await self._console.local_principal(request)
        result = done["result"]
        value = _shape(self._console, tool) | done
        value["listed"] = shortened_form(self._console.crib, principal, tool)
        value |= {"arguments": arguments, "mode": mode, "wrong": wrong or {}, "changes": changes}
        value |= {
            "commands": self._commands(tool.ref, arguments),
            "unaccepted": unaccepted_hash(self._console, principal, tool),
        }
        usage = await self._console.history.usage(CallFilter(tool=str(tool.ref)))
        value["usage"] = usage.to_json()
        value["users"] = await users_of(self._console.crib, tool.ref, principal.cwd) if request.method == "GET" else []
        also = {
            "spark": usage.spark,
            "call": self._calls.number(),
            "form": form,
            "folded": sum(not child.required for child in form.children),
            "filled": any(not child.blank for child in form.children if not child.required),
            "parts": contents.shown(result["content"]) if result else [],
            "written": form.text or dumps(arguments, option=orjson.OPT_INDENT_2).decode(),
        }
        shown = ScreenContent("tools", str(tool.ref), "tool.html", value, "parts/tool_try.html", also)
        return await self._console.respond(request, shown)

    async def _find(self, principal: Principal, ref: ToolRef) -> tuple[Tool | None, list[JsonObject]]:
        """Return the tool (None if held back) and its pending changes."""
        crib = self._console.crib
        await crib.ready(principal, ref.server)
        changes = [
            each
            for each in pending_changes(self._console, principal)
            if (each["what"], each["ref"]) == ("tool", str(ref))
        ]
        try:
            return crib.gate.find(principal, ref), changes
        except ToolcribError as error:
            if not changes or error.code not in ("tool.unknown", "tool.changed"):
                raise
            return None, changes

    def _commands(self, ref: ToolRef, arguments: JsonObject) -> JsonObject:
        """Return the equivalent call for a terminal."""
        written = dumps(arguments).decode()
        address = f"http://{self._console.address}/api{tool_address(ref)}/call"
        token = shlex.quote(str(self._console.crib.home.token_file))
        body = shlex.quote(dumps({"arguments": arguments}).decode())
        return {
            "cli": shlex.join(["toolcrib", "tools", "call", str(ref), written]),
            "curl": f'curl {shlex.quote(address)} -H "Authorization: Bearer $(cat {token})" '
            f"-H 'Content-Type: application/json' -d {body}",
        }


def _nothing() -> Response:
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _shape(console: Console, tool: Tool) -> JsonObject:
    kind = kind_of(tool)
    return {
        "ref": str(tool.ref),
        "server": tool.ref.server,
        "name": tool.ref.tool,
        "href": tool_address(tool.ref),
        "pattern": literal_pattern(tool.ref),
        "exposedName": console.crib.gate.name("endpoint", tool.ref),
        "toolTitle": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "marks": tool.marks.to_json(),
        "kind": kind,
        "tone": KINDS[kind][1],
        "upstream": tool.kind == "upstream",
        "problems": [problem.to_json() for problem in tool.problems],
        "hasApp": app_uri(tool) is not None,
    }


async def _submitted_values(sent: FormData) -> dict[str, str]:
    """Return the submitted values, files as base64, after applying an add or remove button."""
    filled: dict[str, str] = {}
    for name, value in sent.multi_items():
        if isinstance(value, UploadFile):
            filled[name] = base64.b64encode(await value.read()).decode()
        elif name[:1] in ("/", "=", "?", "#"):
            filled[name] = value
    if isinstance(path := sent.get("add"), str):
        return forms.grown(filled, path)
    if isinstance(path := sent.get("drop"), str):
        return forms.shrunk(filled, path)
    return filled


def _switch_mode(tool: Tool, mode: str, arguments: forms.FormArguments) -> tuple[str, forms.Field, JsonObject]:
    """Return the form in the other mode; arguments that do not fit into fields stay JSON."""
    if mode == "form":
        return "json", forms.build(_WHOLE, forms.filled_with(arguments.value)), {}
    form = forms.build(tool.input_schema, forms.filled_with(arguments.value))
    if arguments.wrong or form.kind != "object" or forms.read(form).value != arguments.value:
        kept = forms.build(_WHOLE, forms.filled_with(arguments.value))
        return "json", kept, dict(arguments.wrong) or {_ROOT: "These arguments do not fit the form."}
    return "form", form, {}


def _object(text: str) -> JsonObject | None:
    try:
        value = loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if is_object(value) else None
