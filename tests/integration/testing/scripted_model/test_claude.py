"""The real Claude Code on the scripted model through its SDK: the replies must be such that it accepts them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)

from lab import eventually
from long_tests import takes_long
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leaked_children"), takes_long]

Decide = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResultAllow | PermissionResultDeny]]
PING = "mcp__lab__ping"
CALL: JsonObject = {"blocks": [{"text": "Looking."}, {"tool": PING, "input": {"x": 1}}]}
REPEAT_RESULT: JsonObject = {"blocks": [{"text": "Heard: {{last_tool_result}}"}]}


class Claude:
    """Claude Code in a project of its own; `calls` are the calls of its one tool."""

    def __init__(self, model: ScriptedModel, project: Path) -> None:
        self.model = model
        self.project = project
        self.calls: list[JsonObject] = []

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[ClaudeSDKClient]:
        """Open a client."""

        @tool("ping", "Answer.", {"x": int})
        async def ping(arguments: dict[str, Any]) -> dict[str, Any]:
            self.calls.append(arguments)
            return {"content": [{"type": "text", "text": "pong"}]}

        usual: dict[str, Any] = {
            "cwd": str(self.project),
            "setting_sources": [],
            "strict_mcp_config": True,
            "tools": ["Write"],
            "max_turns": 8,
            "model": "claude-sonnet-4-5",
            "include_partial_messages": True,
            "mcp_servers": {"lab": create_sdk_mcp_server("lab", tools=[ping])},
        }
        with anyio.fail_after(60):
            async with ClaudeSDKClient(ClaudeAgentOptions(**{**usual, **options})) as client:
                yield client


@pytest.fixture
def claude(scripted_model: ScriptedModel, claude_environment: Environment, tmp_path: Path) -> Claude:
    """Return Claude Code on the scripted model."""
    return Claude(scripted_model, tmp_path)


async def send(client: ClaudeSDKClient, prompt: str) -> list[Any]:
    """Send a prompt and return all messages of the answer; the last is the result."""
    await client.query(prompt)
    return [message async for message in client.receive_response()]


def texts(messages: list[Any]) -> list[str]:
    blocks = [block for message in messages if isinstance(message, AssistantMessage) for block in message.content]
    return [block.text for block in blocks if isinstance(block, TextBlock)]


def results(messages: list[Any]) -> list[ToolResultBlock]:
    contents = [message.content for message in messages if isinstance(message, UserMessage)]
    return [block for content in contents for block in content if isinstance(block, ToolResultBlock)]


def result_of(messages: list[Any]) -> ResultMessage:
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1]


async def allow(name: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
    return PermissionResultAllow()


async def deny(name: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResultDeny:
    return PermissionResultDeny(message="Not today.")


async def test_turn_with_an_approved_call_requests_the_model_twice(claude: Claude) -> None:
    claude.model.scripts["s"] = [CALL, REPEAT_RESULT]
    async with claude.open(can_use_tool=allow) as client:
        messages = await send(client, "go [[script:s]]")
    assert claude.calls == [{"x": 1}]
    assert texts(messages)[0] == "Looking."
    assert "pong" in texts(messages)[1]
    assert [(request.script, request.step) for request in claude.model.requests] == [("s", 0), ("s", 1)]
    assert claude.model.background == []
    assert PING in claude.model.requests[0].tools


async def test_reply_is_streamed_in_chunks_of_the_scripted_size(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"blocks": [{"thinking": "Let me see."}, {"text": "one two three"}], "chunk": 4}]
    async with claude.open() as client:
        messages = await send(client, "[[script:s]]")
    deltas = [
        message.event["delta"] for message in messages if isinstance(message, StreamEvent) and "delta" in message.event
    ]
    assert [delta["text"] for delta in deltas if "text" in delta] == ["one ", "two ", "thre", "e"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Let me see."
    blocks = [block for message in messages if isinstance(message, AssistantMessage) for block in message.content]
    assert [block.thinking for block in blocks if isinstance(block, ThinkingBlock)] == ["Let me see."]


async def test_denial_reason_is_in_the_next_request(claude: Claude) -> None:
    claude.model.scripts["s"] = [CALL, REPEAT_RESULT]
    async with claude.open(can_use_tool=deny) as client:
        messages = await send(client, "[[script:s]]")
    assert claude.calls == []
    assert [result.is_error for result in results(messages)] == [True]
    assert texts(messages)[-1] == "Heard: Not today."


async def test_prompts_of_one_client_continue_scripts_by_name_and_by_words(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"blocks": [{"text": "one"}]}, {"blocks": [{"text": "two"}]}]
    claude.model.scripts["rain"] = {"when": "rain", "steps": [CALL, {"blocks": [{"text": "wet"}]}]}
    async with claude.open(can_use_tool=allow) as client:
        assert texts(await send(client, "[[script:s]]")) == ["one"]
        assert texts(await send(client, "and now?")) == ["two"]
        assert texts(await send(client, "Will it rain?"))[-1] == "wet"
        assert texts(await send(client, "[[script:s]]")) == ["one"]
    assert len(claude.calls) == 1


async def test_edits_are_allowed_in_mode_accept_edits(claude: Claude) -> None:
    path = claude.project / "x.txt"
    write: JsonObject = {"tool": "Write", "input": {"file_path": str(path), "content": "hi"}}
    claude.model.scripts["s"] = [{"blocks": [write]}, REPEAT_RESULT]
    async with claude.open(permission_mode="acceptEdits") as client:
        assert not result_of(await send(client, "[[script:s]]")).is_error
    assert path.read_text(encoding="utf-8") == "hi"


async def test_resumed_session_continues_its_script(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"blocks": [{"text": "one"}]}, CALL, REPEAT_RESULT]
    async with claude.open() as client:
        session = result_of(await send(client, "[[script:s]]")).session_id
    async with claude.open(resume=session, can_use_tool=allow) as client:
        messages = await send(client, "and now?")
    assert result_of(messages).session_id == session
    assert "pong" in texts(messages)[-1]


async def test_api_error_is_the_result_of_the_turn(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"status": 400, "error": "invalid_request_error", "message": "Not like this."}]
    async with claude.open() as client:
        result = result_of(await send(client, "[[script:s]]"))
    assert result.is_error
    assert "Not like this." in (result.result or "")


async def test_truncated_reply_fails_after_one_retry_without_streaming(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"blocks": [{"text": "one two three"}], "cut": True}]
    async with claude.open() as client:
        result = result_of(await send(client, "[[script:s]]"))
    assert result.is_error
    assert [bool(body.get("stream")) for body in claude.model.bodies] == [True, False]


async def test_turn_is_interrupted_while_the_model_hangs(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"hang_s": 600}]
    claude.model.scripts["next"] = [{"blocks": [{"text": "here"}]}]
    async with claude.open() as client:
        await client.query("[[script:s]]")
        await eventually(lambda: bool(claude.model.requests))
        await client.interrupt()
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                assert message.is_error
        assert texts(await send(client, "[[script:next]]"))[-1] == "here"


async def test_turn_is_interrupted_while_the_reply_is_streamed(claude: Claude) -> None:
    claude.model.scripts["s"] = [{"blocks": [{"text": "word " * 500}], "chunk": 5, "chunk_delay_ms": 20}]
    async with claude.open() as client:
        await client.query("[[script:s]]")
        interrupted = False
        async for message in client.receive_response():
            if isinstance(message, StreamEvent) and "delta" in message.event and not interrupted:
                interrupted = True
                await client.interrupt()
        assert interrupted


async def test_concurrent_sessions_have_their_own_scripts_and_call_ids(claude: Claude) -> None:
    names = ("a", "b", "c")
    for name in names:
        claude.model.scripts[name] = [CALL, {"blocks": [{"text": name}]}]
    ids: list[str] = []

    async def run_session(name: str) -> None:
        async with claude.open(can_use_tool=allow) as client:
            messages = await send(client, f"[[script:{name}]]")
        assert texts(messages)[-1] == name
        ids.extend(result.tool_use_id for result in results(messages))

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(run_session, name)
    assert len(set(ids)) == 3


async def test_endless_script_ends_at_the_turn_limit(claude: Claude) -> None:
    claude.model.scripts["s"] = [CALL]
    async with claude.open(can_use_tool=allow, max_turns=3) as client:
        result = result_of(await send(client, "[[script:s]]"))
    assert result.subtype == "error_max_turns"
    assert len(claude.calls) == 3
