"""A session as Markdown: all messages and calls, and no content that breaks out of its block."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.sessions.markdown import markdown
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind

pytestmark = pytest.mark.anyio

EventData = tuple[SessionEventKind, JsonObject]


async def written_markdown(*data: EventData, title: str = "T", parent: str | None = None) -> str:
    """Return the Markdown of these events."""

    async def events() -> AsyncIterator[SessionEvent]:
        for number, (kind, fields) in enumerate(data, 1):
            yield SessionEvent(number, "", "s", kind, fields, parent)

    return b"".join([part async for part in markdown(title, events())]).decode()


async def test_messages_calls_and_results_are_written_in_order() -> None:
    text = await written_markdown(
        ("user_message", {"content": "Go"}),
        ("text_delta", {"messageId": "m", "text": "I l"}),
        ("text_message", {"messageId": "m", "text": "I look."}),
        ("tool_call_start", {"toolCallId": "c", "toolName": "Read"}),
        ("tool_call_end", {"toolCallId": "c", "arguments": {"file": "ü"}}),
        ("approval_resolved", {"approvalId": "a", "decision": "denied", "by": "owner", "reason": "No\nway"}),
        ("tool_result", {"toolCallId": "c", "isError": True, "content": [
            {"type": "text", "text": "no"}, {"type": "image"}]}),
        ("question_prompt", {"questionId": "q", "questions": [{"question": "Which?"}]}),
        ("question_answered", {"questionId": "q", "answers": {"Which?": "Red"}}),
        ("error", {"code": "runner.died", "message": "It ended."}),
        ("done", {"reason": "failed"}),
    )  # fmt: skip
    assert text == (
        "# T\n\n## You\n\nGo\n\n## Agent\n\nI look.\n\n"
        '**Call of `Read`**\n\n```json\n{\n  "file": "ü"\n}\n```\n\n'
        "*The call was denied by owner: No way*\n\n**Error of `Read`**\n\n```\nno\n[image]\n```\n\n"
        "**Question:** Which?\n\n**Answer to** Which? **is** Red\n\n"
        "**Error** (runner.died): It ended.\n\n*The answer ended: failed.*\n"
    )


async def test_sub_agent_messages_are_quoted() -> None:
    text = await written_markdown(("text_message", {"messageId": "m", "text": "one\ntwo"}), parent="c")
    assert text == "# T\n\n> ## Agent\n> \n> one\n> two\n"


@given(st.text(st.sampled_from("`~a\n# ")))
@pytest.mark.anyio
async def test_result_never_closes_its_code_fence(content: str) -> None:
    text = await written_markdown(("tool_result", {"toolCallId": "c", "content": [{"type": "text", "text": content}]}))
    fence, _, rest = text.split("\n\n", 2)[2].partition("\n")
    assert set(fence) == {"`"}
    inside = rest.removesuffix(f"\n{fence}\n")
    assert inside == content
    assert fence not in inside
