"""Approvals and questions of sessions, answered over HTTP."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.web.crib import Running
from integration.web.session_client import BOUND, COLOUR, SessionClient, kind, kinds, open_session_client
from toolcrib.model.json import Json, JsonObject

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sessions(running: Running, tmp_path: Path) -> AsyncGenerator[SessionClient]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with open_session_client(running, cwd) as sessions:
        yield sessions


async def test_call_waits_for_its_approval_and_continues(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    pending = await sessions.until_kind(id, "approval_required")
    assert (pending["server"], pending["tool"], pending["arguments"]) == ("bench", "echo", {"text": "ab", "times": 2})
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["state"] == "waiting"
    (listed,) = await sessions.request("GET", "/api/approvals?status=pending")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["door"]) == (
        "approval",
        pending["approvalId"],
        id,
        "session",
    )
    assert listed["toolCallId"] == pending["toolCallId"]
    await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", {"decision": "approve"})
    events = await sessions.until_done(id)
    assert kinds(events) == [
        "user_message", "text_delta", "text_message", "tool_call_start", "tool_call_end", "approval_required",
        "approval_resolved", "tool_result", "text_delta", "text_message", "done",
    ]  # fmt: skip
    assert len({event["toolCallId"] for event in events if "toolCallId" in event}) == 1
    resolved, result = (next(filter(kind(wanted), events)) for wanted in ("approval_resolved", "tool_result"))
    assert (resolved["decision"], resolved["approvalId"]) == ("approved", pending["approvalId"])
    assert (result["isError"], result["content"]) == (False, [{"type": "text", "text": "abab"}])
    states = [event["state"] for event in events if event["kind"] == "session_status"]
    assert states == ["starting", "running", "waiting", "running", "idle"]


async def test_denial_reaches_the_model_with_its_reason(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    pending = await sessions.until_kind(id, "approval_required")
    body = {"decision": "deny", "reason": "Not on a Sunday."}
    await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", body)
    events = await sessions.until_done(id)
    result = next(filter(kind("tool_result"), events))
    assert result["isError"]
    assert "Not on a Sunday." in result["content"][0]["text"]
    assert "Not on a Sunday." in [event["text"] for event in events if event["kind"] == "text_message"][-1]


async def test_edited_arguments_replace_those_of_the_call(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    pending = await sessions.until_kind(id, "approval_required")
    body = {"decision": "approve", "arguments": {"text": "z", "times": 3}}
    await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", body)
    assert (await sessions.until_kind(id, "tool_result"))["content"] == [{"type": "text", "text": "zzz"}]
    assert (await sessions.until_kind(id, "approval_resolved"))["arguments"] == {"text": "z", "times": 3}


async def test_approval_for_the_session_covers_later_calls(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    pending = await sessions.until_kind(id, "approval_required")
    await sessions.request(
        "POST", f"/api/approvals/{pending['approvalId']}", {"decision": "approve", "scope": "session"}
    )
    last = (await sessions.until_done(id))[-1]["seq"]
    await sessions.send(id, "[[script:echo]]")
    assert "approval_required" not in kinds(await sessions.until_done(id, last))


async def test_interrupt_withdraws_a_pending_approval(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    pending = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/sessions/{id}/interrupt")
    events = await sessions.until_done(id)
    assert next(filter(kind("approval_resolved"), events))["decision"] == "withdrawn"
    problem = await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", {"decision": "approve"}, 409)
    assert problem["code"] == "approval.decided"


async def session_with_question(sessions: SessionClient) -> tuple[str, JsonObject]:
    """Create a session whose agent asks a question; return both."""
    id = await sessions.create()
    await sessions.send(id, "[[script:ask]]")
    return id, await sessions.until_kind(id, "question_prompt")


async def test_question_of_the_agent_is_listed_and_answered(sessions: SessionClient) -> None:
    id, pending = await session_with_question(sessions)
    (listed,) = await sessions.request("GET", "/api/approvals")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["status"]) == (
        "question",
        pending["questionId"],
        id,
        "pending",
    )
    assert listed["questions"] == pending["questions"]
    assert listed["questions"][0]["question"] == COLOUR
    assert await sessions.request("GET", f"/api/approvals/{pending['questionId']}") == listed
    assert await sessions.request("GET", "/api/approvals?status=approved") == []
    assert await sessions.request("GET", "/api/approvals?session=other") == []
    path = f"/api/sessions/{id}/questions/{pending['questionId']}"
    answered = await sessions.request("POST", path, {"answers": {COLOUR: "Blue"}})
    assert answered == {"questionId": pending["questionId"], "answers": {COLOUR: "Blue"}}
    events = await sessions.until_done(id)
    assert next(filter(kind("question_answered"), events))["answers"] == {COLOUR: "Blue"}
    assert "Blue" in [event["text"] for event in events if event["kind"] == "text_message"][-1]
    assert await sessions.request("GET", "/api/approvals") == []
    assert (await sessions.request("POST", path, {"answers": {COLOUR: "Red"}}, 409))["code"] == "question.answered"


async def test_several_choices_are_joined_into_one_answer(sessions: SessionClient) -> None:
    id, pending = await session_with_question(sessions)
    path = f"/api/sessions/{id}/questions/{pending['questionId']}"
    answered = await sessions.request("POST", path, {"answers": {COLOUR: ["Red", "Blue"]}})
    assert answered["answers"] == {COLOUR: "Red, Blue"}


async def test_invalid_answer_leaves_the_question_pending(sessions: SessionClient) -> None:
    id, pending = await session_with_question(sessions)
    path = f"/api/sessions/{id}/questions/{pending['questionId']}"
    wrong: list[tuple[JsonObject, str]] = [
        ({"Something else?": "Blue"}, "question.answer"), ({COLOUR: " "}, "question.answer"),
        ({COLOUR: []}, "question.answer"), ({}, "request.invalid"), ({COLOUR: 5}, "request.invalid"),
    ]  # fmt: skip
    for answers, code in wrong:
        assert (await sessions.request("POST", path, {"answers": answers}, 422))["code"] == code, answers
    other = await sessions.create()
    elsewhere = f"/api/sessions/{other}/questions/{pending['questionId']}"
    assert (await sessions.request("POST", elsewhere, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    nothing = f"/api/sessions/{id}/questions/nothing"
    assert (await sessions.request("POST", nothing, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    problem = await sessions.request("POST", f"/api/approvals/{pending['questionId']}", {"decision": "approve"}, 422)
    assert path in problem["hint"]
    await sessions.request("POST", path, {"answers": {COLOUR: "Red"}})


async def test_interrupt_closes_a_pending_question(sessions: SessionClient) -> None:
    id, pending = await session_with_question(sessions)
    await sessions.request("POST", f"/api/sessions/{id}/interrupt")
    events = await sessions.until_done(id)
    closed = next(filter(kind("question_answered"), events))
    assert (closed["questionId"], closed["answers"]) == (pending["questionId"], {})
    assert await sessions.request("GET", "/api/approvals") == []


async def test_questions_and_approvals_are_listed_together_newest_first(sessions: SessionClient) -> None:
    first, question = await session_with_question(sessions)
    second = await sessions.create()
    await sessions.send(second, "[[script:echo]]")
    approval = await sessions.until_kind(second, "approval_required")
    listed = await sessions.request("GET", "/api/approvals?status=pending")
    assert [each["id"] for each in listed] == [approval["approvalId"], question["questionId"]]
    assert [each["id"] for each in await sessions.request("GET", f"/api/approvals?session={first}")] == [
        question["questionId"]
    ]
    assert len(await sessions.request("GET", "/api/approvals?limit=1")) == 1


async def test_token_that_may_approve_does_not_see_questions(sessions: SessionClient) -> None:
    await session_with_question(sessions)
    made = await sessions.request("POST", "/api/tokens", {"name": "helper", "source": "api", "mayApprove": True}, 201)
    headers = {"authorization": f"Bearer {made['secret']}"}
    assert (await sessions.client.get("/api/approvals", headers=headers)).json() == []


async def test_deleting_a_session_removes_its_pending_question(sessions: SessionClient) -> None:
    id, _ = await session_with_question(sessions)
    with anyio.fail_after(BOUND):
        await sessions.request("DELETE", f"/api/sessions/{id}", status=204)
    assert await sessions.request("GET", "/api/approvals") == []


async def test_question_outside_a_session_is_answered_with_the_approvals(sessions: SessionClient) -> None:
    async with anyio.create_task_group() as tasks:
        body = {"arguments": {"question": "Ready?", "options": ["Aye", "Nay"]}}
        tasks.start_soon(sessions.request, "POST", "/api/tools/crew/crib_ask_owner/call", body)
        pending = await _first_pending(sessions)
        assert (pending["kind"], pending["sessionId"]) == ("question", "")
        at = f"/api/approvals/{pending['id']}"
        refused = await sessions.request("POST", at, {"decision": "approve"}, 422)
        assert f"{at}/answers" in refused["hint"]
        answered = await sessions.request("POST", f"{at}/answers", {"answers": {"Ready?": "Aye"}})
        assert answered == {"questionId": pending["id"], "answers": {"Ready?": "Aye"}}
    assert await sessions.request("GET", "/api/approvals?status=pending") == []


async def _first_pending(sessions: SessionClient) -> JsonObject:
    """Return the first pending question; check at every event of the feed."""
    with anyio.fail_after(BOUND):
        async for _ in sessions.running.holding.crib.feed.follow(0):
            found: list[JsonObject] = await sessions.request("GET", "/api/approvals?status=pending")
            if found:
                return found[0]
    raise AssertionError("The feed has ended.")


async def test_leaving_plan_mode_is_audited(sessions: SessionClient) -> None:
    step: Json = {"blocks": [{"tool": "ExitPlanMode", "input": {"plan": "First this, then that."}}]}
    sessions.runner.scripts["leave"] = [step, {"blocks": [{"text": "I begin."}]}]
    id = await sessions.create(mode="plan")
    await sessions.send(id, "[[script:leave]]")
    pending = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", {"decision": "approve"})
    await sessions.until_done(id)
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["mode"] == "default"
    [record] = await sessions.request("GET", "/api/audit?server=toolcrib&tool=sessions.mode")
    assert record["arguments"] == {"id": id, "before": "plan", "after": "default"}


async def test_lasting_approval_of_a_command_covers_no_other_command_source_or_mode(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:list]]")
    pending = await sessions.until_kind(id, "approval_required")
    await sessions.request(
        "POST", f"/api/approvals/{pending['approvalId']}", {"decision": "approve", "scope": "always"}
    )
    await sessions.until_done(id)
    (rule,) = await sessions.request("GET", "/api/policy/rules")
    assert rule["principal"] == {"kind": "session", "source": "api"}
    assert {"pointer": "/command", "test": "equals", "value": "ls"} in rule["conditions"]

    again = await sessions.create()
    await sessions.send(again, "[[script:list]]")
    assert "approval_required" not in kinds(await sessions.until_done(again))
    for body, script in (({}, "remove"), ({"source": "cli"}, "list")):
        other = await sessions.create(**body)
        await sessions.send(other, f"[[script:{script}]]")
        pending = await sessions.until_kind(other, "approval_required")
        await sessions.request("POST", f"/api/approvals/{pending['approvalId']}", {"decision": "deny"})
    planning = await sessions.create(mode="plan")
    await sessions.send(planning, "[[script:list]]")
    assert (await sessions.until_kind(planning, "tool_result"))["isError"]
    assert [call for call in sessions.runner.ran if call[1]["command"] != "ls"] == []
    assert len(sessions.runner.ran) == 2


async def test_session_is_explained_with_its_own_agent_mode_and_directory(sessions: SessionClient) -> None:
    await sessions.request(
        "POST", "/api/agents", {"id": "reader", "name": "Reader", "toolPermissions": ["bench/echo"]}, 201
    )
    id = await sessions.create(agentId="reader", mode="plan")
    pending = f"/api/policy/explain?session={id[:9]}&tool=bench"
    hidden = await sessions.request("GET", f"{pending}/broken")
    assert (hidden["verdict"], hidden["principal"]["agent"], hidden["principal"]["mode"]) == (
        "hidden",
        "reader",
        "plan",
    )
    assert (hidden["principal"]["session"], hidden["principal"]["cwd"]) == (id, str(sessions.cwd))
    assert (await sessions.request("GET", f"{pending}/echo"))["verdict"] == "allow"
    assert (await sessions.request("GET", f"{pending}/echo&mode=default"))["verdict"] == "ask"
    assert [each["ref"] for each in await sessions.request("GET", f"/api/tools?session={id}")] == ["bench/echo"]
    assert (await sessions.request("GET", "/api/tools?session=nowhere", status=404))["code"] == "session.unknown"
