"""A small scripted coding agent that speaks the Agent Client Protocol.

Started as a program: `python agent.py FOLDER [HABIT…]`. The folder has `scripts.json`; the agent stores the history of
each session there. Habits reproduce what real agents do: `silent` announces no call of the crib's tools, `late`
announces it afterwards, `forgets` stores no sessions, `deaf` ignores a cancellation, `locked` needs a sign-in, `modes`
has modes of its own, `reckless` has one in which it asks and does not offer to allow a call once.
"""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx2
from acp import (
    RequestError,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)
from acp.core import AgentSideConnection
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Cost,
    ForkSessionResponse,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionForkCapabilities,
    SessionMode,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

from toolcrib.model.json import JsonObject
from toolcrib.testing.scripted_model.reply import reply
from toolcrib.testing.scripted_model.script import Scripts

CRIB = "mcp__toolcrib__"
OPTIONS = [
    PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class Tools:
    """The crib's tools over the MCP endpoint."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._client = httpx2.AsyncClient(
            headers={**headers, "Accept": "application/json, text/event-stream"}, timeout=60
        )
        self._url = url
        self._session: str | None = None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request and return its result or error."""
        if self._session is None:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            answer = await self._post({"id": 0, "method": "initialize", "params": hello})
            self._session = answer.headers["mcp-session-id"]
            await self._post({"method": "notifications/initialized"})
        answer = await self._post({"id": 1, "method": method, "params": params})
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
        body: JsonObject = json.loads(text)
        return body.get("result") or {"isError": True, "content": [{"type": "text", "text": str(body)}]}

    async def _post(self, message: JsonObject) -> httpx2.Response:
        version = {"MCP-Protocol-Version": "2025-11-25"} if self._session else {}
        session = {"Mcp-Session-Id": self._session} if self._session else {}
        answer = await self._client.post(self._url, json={"jsonrpc": "2.0", **message}, headers={**version, **session})
        if answer.status_code >= 400:
            raise RequestError(-32603, f"the endpoint answers {answer.status_code}: {answer.text}")
        return answer


class ScriptedAgent:
    """The agent; one process may have several sessions."""

    def __init__(self, folder: Path, habits: frozenset[str]) -> None:
        self._folder = folder
        self._habits = habits
        self._tools: dict[str, Tools] = {}
        self._history: dict[str, list[JsonObject]] = {}
        self._cwd: dict[str, str] = {}
        self._model = "usual"
        self._mode = "careful"
        self._turn: asyncio.Task[Any] | None = None
        self._client: AgentSideConnection

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        fork = SessionForkCapabilities() if "forgets" not in self._habits else None
        return InitializeResponse(
            protocol_version=9 if "modern" in self._habits else 1,
            agent_capabilities=AgentCapabilities(
                load_session="forgets" not in self._habits,
                mcp_capabilities=McpCapabilities(http="lonely" not in self._habits),
                session_capabilities=SessionCapabilities(fork=fork),
            ),
        )

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> NewSessionResponse:
        if "locked" in self._habits:
            raise RequestError.auth_required({"why": "not signed in"})
        id = uuid.uuid4().hex
        self._open_session(id, cwd, mcp_servers, [])
        return NewSessionResponse(session_id=id, modes=self._modes(), config_options=[self._option()])

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> LoadSessionResponse:
        history = self._load_history(session_id)
        if history is None:
            raise RequestError.resource_not_found(session_id)
        self._open_session(session_id, cwd, mcp_servers, history)
        for message in history:  # the protocol replays the history
            await self._client.session_update(session_id, update_agent_message_text(f"Once: {message['role']}"))
        return LoadSessionResponse(modes=self._modes(), config_options=[self._option()])

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> ForkSessionResponse:
        id = uuid.uuid4().hex
        self._open_session(id, cwd, mcp_servers, list(self._load_history(session_id) or []))
        return ForkSessionResponse(session_id=id, modes=self._modes(), config_options=[self._option()])

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self._mode = mode_id
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        self._model = str(value)
        return SetSessionConfigOptionResponse(config_options=[self._option()])

    async def cancel(self, session_id: str, **_: Any) -> None:
        if self._turn is not None and "deaf" not in self._habits:
            self._turn.cancel()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        text = "\n".join(block.text for block in prompt)
        self._history[session_id].append({"role": "user", "content": text})
        self._turn = asyncio.create_task(self._play(session_id))
        try:
            reason = await self._turn
        except asyncio.CancelledError:
            self._history[session_id].append({"role": "user", "content": "[Request interrupted by user]"})
            reason = "cancelled"
        finally:
            self._save_history(session_id)
        usage = Usage(total_tokens=15, input_tokens=10, output_tokens=5)
        return PromptResponse(stop_reason=reason, usage=usage)

    async def _play(self, session: str) -> Any:
        history = self._history[session]
        while True:
            read = Scripts(json.loads((self._folder / "scripts.json").read_text(encoding="utf-8")))
            tools = await self._tools[session].ask("tools/list", {})
            names = [{"name": f"{CRIB}{tool['name']}"} for tool in tools["tools"]]
            answer = reply(read, {"model": self._model, "messages": history, "tools": names})
            if answer.step.refusal is not None or answer.message is None:
                raise RequestError(-32603, answer.step.refusal.message if answer.step.refusal else "silence")
            history.append({"role": "assistant", "content": answer.message["content"]})
            await self._send_text(session, answer.message["content"], answer.step.pace)
            uses = [block for block in answer.message["content"] if block["type"] == "tool_use"]
            if not uses:
                cost = Cost(amount=0.25, currency="USD")
                used = UsageUpdate(session_update="usage_update", used=1, size=10, cost=cost)
                await self._client.session_update(session, used)
                return "end_turn"
            results = await asyncio.gather(*(self._call_tool(session, use) for use in uses))
            history.append({"role": "user", "content": results})

    async def _send_text(self, session: str, content: list[JsonObject], pace: Any) -> None:
        for block in content:
            if block["type"] == "text":
                text: str = block["text"]
                for offset in range(0, len(text), pace.chunk):
                    await self._client.session_update(
                        session, update_agent_message_text(text[offset : offset + pace.chunk])
                    )
                    await asyncio.sleep(pace.chunk_delay_ms / 1000)
            elif block["type"] == "thinking":
                await self._client.session_update(session, update_agent_thought_text(block["thinking"]))

    async def _call_tool(self, session: str, use: JsonObject) -> JsonObject:
        is_error, content = await (self._call_crib_tool if use["name"].startswith(CRIB) else self._call_own_tool)(
            session, use
        )
        return {"type": "tool_result", "tool_use_id": use["id"], "content": content, "is_error": is_error}

    async def _call_crib_tool(self, session: str, use: JsonObject) -> tuple[bool, list[JsonObject]]:
        id, name, arguments = use["id"], use["name"], use["input"]
        if not self._habits & {"silent", "late"}:
            start = start_tool_call(id, name, kind="other", status="pending", raw_input={})
            await self._client.session_update(session, start)
            if not await self._request_permission(session, ToolCallUpdate(tool_call_id=id, raw_input=arguments)):
                return True, [{"type": "text", "text": "refused"}]
        elif "late" in self._habits:
            asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(self._announce(session, use)))
        result = await self._tools[session].ask("tools/call", {"name": name.removeprefix(CRIB), "arguments": arguments})
        content: list[JsonObject] = result["content"]
        if "silent" not in self._habits:
            words = [tool_content(text_block(str(block.get("text", ""))[:50])) for block in content]
            status = "failed" if result.get("isError") else "completed"
            await self._client.session_update(session, update_tool_call(id, status=status, content=words))
        return bool(result.get("isError")), content

    async def _announce(self, session: str, use: JsonObject) -> None:
        start = start_tool_call(use["id"], use["name"], kind="other", status="in_progress", raw_input=use["input"])
        await self._client.session_update(session, start)

    async def _call_own_tool(self, session: str, use: JsonObject) -> tuple[bool, list[JsonObject]]:
        id, command = use["id"], use["input"].get("command", "")
        call: Any = {"kind": "execute", "raw_input": {"command": command}}
        if use["name"] == "Read":
            call = {"kind": "read", "raw_input": use["input"], "locations": [{"path": use["input"]["filePath"]}]}
        title = use["input"].get("title", command)
        await self._client.session_update(session, start_tool_call(id, title, status="pending", kind=call["kind"]))
        if not await self._request_permission(session, ToolCallUpdate(tool_call_id=id, title=title, **call)):
            refused = tool_content(text_block("The user rejected this."))
            await self._client.session_update(session, update_tool_call(id, status="failed", content=[refused]))
            return True, [{"type": "text", "text": "The user rejected this."}]
        if command == "die":
            sys.stderr.write("Out of memory.\n")
            sys.stderr.flush()
            os._exit(3)
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", command], cwd=self._cwd[session], capture_output=True, text=True, check=False
        )
        out = tool_content(text_block(done.stdout))
        await self._client.session_update(session, update_tool_call(id, status="completed", content=[out]))
        return False, [{"type": "text", "text": done.stdout}]

    async def _request_permission(self, session: str, call: ToolCallUpdate) -> bool:
        options = [each for each in OPTIONS if "reckless" not in self._habits or each.kind != "allow_once"]
        answer = await self._client.request_permission(session_id=session, tool_call=call, options=options)
        outcome = answer.outcome
        return isinstance(outcome, AllowedOutcome) and outcome.option_id in ("yes", "always")

    def _open_session(self, id: str, cwd: str, servers: list[Any] | None, history: list[JsonObject]) -> None:
        (server,) = servers or []
        self._tools[id] = Tools(server.url, {header.name: header.value for header in server.headers})
        self._cwd[id] = cwd
        self._history[id] = history
        started_with = {
            "url": server.url,
            "headers": {h.name: h.value for h in server.headers},
            "environment": dict(os.environ),
        }
        (self._folder / "seen.json").write_text(json.dumps(started_with), encoding="utf-8")

    def _modes(self) -> SessionModeState | None:
        if "modes" not in self._habits:
            return None
        ids = ("careful", "plan", "yolo")
        modes = [SessionMode(id=id, name=id) for id in ids]
        return SessionModeState(current_mode_id="yolo", available_modes=modes)

    def _option(self) -> Any:
        values = [SessionConfigSelectOption(value=value, name=value) for value in ("usual", "other")]
        return SessionConfigOptionSelect(
            type="select", id="model", name="Model", category="model", current_value=self._model, options=values
        )

    def _load_history(self, id: str) -> list[JsonObject] | None:
        path = self._folder / f"{id}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _save_history(self, id: str) -> None:
        (self._folder / "mode").write_text(self._mode, encoding="utf-8")
        (self._folder / f"{id}.json").write_text(json.dumps(self._history[id]), encoding="utf-8")


if __name__ == "__main__":
    agent: Any = ScriptedAgent(Path(sys.argv[1]), frozenset(sys.argv[2:]))  # it implements the protocol structurally
    asyncio.run(run_agent(agent, use_unstable_protocol=True))
