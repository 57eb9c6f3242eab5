"""What a session asks a person over HTTP: calls to be approved, and questions of the agent itself."""

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


async def test_a_call_waits_for_its_approval_and_goes_on_after_it(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    asked = await sessions.until_kind(id, "approval_required")
    assert (asked["server"], asked["tool"], asked["arguments"]) == ("bench", "echo", {"text": "ab", "times": 2})
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["state"] == "waiting"
    (listed,) = await sessions.request("GET", "/api/approvals?status=pending")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["door"]) == (
        "approval",
        asked["approvalId"],
        id,
        "session",
    )
    assert listed["toolCallId"] == asked["toolCallId"]
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"})
    events = await sessions.until_done(id)
    assert kinds(events) == [
        "user_message", "text_delta", "text_message", "tool_call_start", "tool_call_end", "approval_required",
        "approval_resolved", "tool_result", "text_delta", "text_message", "done",
    ]  # fmt: skip
    assert len({event["toolCallId"] for event in events if "toolCallId" in event}) == 1
    resolved, result = (next(filter(kind(wanted), events)) for wanted in ("approval_resolved", "tool_result"))
    assert (resolved["decision"], resolved["approvalId"]) == ("approved", asked["approvalId"])
    assert (result["isError"], result["content"]) == (False, [{"type": "text", "text": "abab"}])
    states = [event["state"] for event in events if event["kind"] == "session_status"]
    assert states == ["starting", "running", "waiting", "running", "idle"]


async def test_a_refusal_reaches_the_model_with_its_reason(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    asked = await sessions.until_kind(id, "approval_required")
    body = {"decision": "deny", "reason": "Not on a Sunday."}
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", body)
    events = await sessions.until_done(id)
    result = next(filter(kind("tool_result"), events))
    assert result["isError"]
    assert "Not on a Sunday." in result["content"][0]["text"]
    assert "Not on a Sunday." in [event["text"] for event in events if event["kind"] == "text_message"][-1]


async def test_edited_arguments_are_the_ones_that_run(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    asked = await sessions.until_kind(id, "approval_required")
    body = {"decision": "approve", "arguments": {"text": "z", "times": 3}}
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", body)
    assert (await sessions.until_kind(id, "tool_result"))["content"] == [{"type": "text", "text": "zzz"}]
    assert (await sessions.until_kind(id, "approval_resolved"))["arguments"] == {"text": "z", "times": 3}


async def test_an_answer_for_the_session_is_asked_once(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    asked = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve", "scope": "session"})
    last = (await sessions.until_done(id))[-1]["seq"]
    await sessions.send(id, "[[script:echo]]")
    assert "approval_required" not in kinds(await sessions.until_done(id, last))


async def test_an_interrupt_withdraws_what_was_asked(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:echo]]")
    asked = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/sessions/{id}/interrupt")
    events = await sessions.until_done(id)
    assert next(filter(kind("approval_resolved"), events))["decision"] == "withdrawn"
    problem = await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"}, 409)
    assert problem["code"] == "approval.decided"


async def asked_of(sessions: SessionClient) -> tuple[str, JsonObject]:
    """A session whose agent asks something."""
    id = await sessions.create()
    await sessions.send(id, "[[script:ask]]")
    return id, await sessions.until_kind(id, "question_prompt")


async def test_a_question_of_the_agent_is_listed_and_answered(sessions: SessionClient) -> None:
    id, asked = await asked_of(sessions)
    (listed,) = await sessions.request("GET", "/api/approvals")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["status"]) == (
        "question",
        asked["questionId"],
        id,
        "pending",
    )
    assert listed["questions"] == asked["questions"]
    assert listed["questions"][0]["question"] == COLOUR
    assert await sessions.request("GET", f"/api/approvals/{asked['questionId']}") == listed
    assert await sessions.request("GET", "/api/approvals?status=approved") == []
    assert await sessions.request("GET", "/api/approvals?session=other") == []
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    answered = await sessions.request("POST", path, {"answers": {COLOUR: "Blue"}})
    assert answered == {"questionId": asked["questionId"], "answers": {COLOUR: "Blue"}}
    events = await sessions.until_done(id)
    assert next(filter(kind("question_answered"), events))["answers"] == {COLOUR: "Blue"}
    assert "Blue" in [event["text"] for event in events if event["kind"] == "text_message"][-1]
    assert await sessions.request("GET", "/api/approvals") == []
    assert (await sessions.request("POST", path, {"answers": {COLOUR: "Red"}}, 409))["code"] == "question.answered"


async def test_several_choices_are_one_answer(sessions: SessionClient) -> None:
    id, asked = await asked_of(sessions)
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    answered = await sessions.request("POST", path, {"answers": {COLOUR: ["Red", "Blue"]}})
    assert answered["answers"] == {COLOUR: "Red, Blue"}


async def test_an_answer_that_does_not_fit_leaves_the_question_open(sessions: SessionClient) -> None:
    id, asked = await asked_of(sessions)
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    wrong: list[tuple[JsonObject, str]] = [
        ({"Something else?": "Blue"}, "question.answer"), ({COLOUR: " "}, "question.answer"),
        ({COLOUR: []}, "question.answer"), ({}, "request.invalid"), ({COLOUR: 5}, "request.invalid"),
    ]  # fmt: skip
    for answers, code in wrong:
        assert (await sessions.request("POST", path, {"answers": answers}, 422))["code"] == code, answers
    other = await sessions.create()
    elsewhere = f"/api/sessions/{other}/questions/{asked['questionId']}"
    assert (await sessions.request("POST", elsewhere, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    nothing = f"/api/sessions/{id}/questions/nothing"
    assert (await sessions.request("POST", nothing, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    problem = await sessions.request("POST", f"/api/approvals/{asked['questionId']}", {"decision": "approve"}, 422)
    assert path in problem["hint"]
    await sessions.request("POST", path, {"answers": {COLOUR: "Red"}})


async def test_a_question_of_an_answer_that_is_interrupted_is_closed(sessions: SessionClient) -> None:
    id, asked = await asked_of(sessions)
    await sessions.request("POST", f"/api/sessions/{id}/interrupt")
    events = await sessions.until_done(id)
    closed = next(filter(kind("question_answered"), events))
    assert (closed["questionId"], closed["answers"]) == (asked["questionId"], {})
    assert await sessions.request("GET", "/api/approvals") == []


async def test_questions_and_approvals_are_one_list_the_newest_first(sessions: SessionClient) -> None:
    first, question = await asked_of(sessions)
    second = await sessions.create()
    await sessions.send(second, "[[script:echo]]")
    approval = await sessions.until_kind(second, "approval_required")
    listed = await sessions.request("GET", "/api/approvals?status=pending")
    assert [each["id"] for each in listed] == [approval["approvalId"], question["questionId"]]
    assert [each["id"] for each in await sessions.request("GET", f"/api/approvals?session={first}")] == [
        question["questionId"]
    ]
    assert len(await sessions.request("GET", "/api/approvals?limit=1")) == 1


async def test_a_token_that_may_approve_sees_no_questions_of_agents(sessions: SessionClient) -> None:
    await asked_of(sessions)
    made = await sessions.request("POST", "/api/tokens", {"name": "helper", "source": "api", "mayApprove": True}, 201)
    headers = {"authorization": f"Bearer {made['secret']}"}
    assert (await sessions.client.get("/api/approvals", headers=headers)).json() == []


async def test_a_stopped_crib_leaves_nobody_waiting(sessions: SessionClient) -> None:
    id, _ = await asked_of(sessions)
    with anyio.fail_after(BOUND):
        await sessions.request("DELETE", f"/api/sessions/{id}", status=204)
    assert await sessions.request("GET", "/api/approvals") == []


async def test_who_asks_outside_of_a_session_is_answered_at_the_approvals(sessions: SessionClient) -> None:
    async with anyio.create_task_group() as tasks:
        body = {"arguments": {"question": "Ready?", "options": ["Aye", "Nay"]}}
        tasks.start_soon(sessions.request, "POST", "/api/tools/crew/crib_ask_owner/call", body)
        asked = await _waiting(sessions)
        assert (asked["kind"], asked["sessionId"]) == ("question", "")
        at = f"/api/approvals/{asked['id']}"
        refused = await sessions.request("POST", at, {"decision": "approve"}, 422)
        assert f"{at}/answers" in refused["hint"]
        answered = await sessions.request("POST", f"{at}/answers", {"answers": {"Ready?": "Aye"}})
        assert answered == {"questionId": asked["id"], "answers": {"Ready?": "Aye"}}
    assert await sessions.request("GET", "/api/approvals?status=pending") == []


async def _waiting(sessions: SessionClient) -> JsonObject:
    """The first question that waits; looked for whenever something happens in the crib."""
    with anyio.fail_after(BOUND):
        async for _ in sessions.running.holding.crib.feed.follow(0):
            found: list[JsonObject] = await sessions.request("GET", "/api/approvals?status=pending")
            if found:
                return found[0]
    raise AssertionError("The feed has ended.")


async def test_a_session_that_leaves_plan_mode_is_on_record(sessions: SessionClient) -> None:
    step: Json = {"blocks": [{"tool": "ExitPlanMode", "input": {"plan": "First this, then that."}}]}
    sessions.runner.scripts["leave"] = [step, {"blocks": [{"text": "I begin."}]}]
    id = await sessions.create(mode="plan")
    await sessions.send(id, "[[script:leave]]")
    asked = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"})
    await sessions.until_done(id)
    assert (await sessions.request("GET", f"/api/sessions/{id}"))["mode"] == "default"
    [record] = await sessions.request("GET", "/api/audit?server=toolcrib&tool=sessions.mode")
    assert record["arguments"] == {"id": id, "before": "plan", "after": "default"}


async def test_always_for_one_command_runs_that_command_in_no_wider_place(sessions: SessionClient) -> None:
    id = await sessions.create()
    await sessions.send(id, "[[script:list]]")
    asked = await sessions.until_kind(id, "approval_required")
    await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve", "scope": "always"})
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
        asked = await sessions.until_kind(other, "approval_required")
        await sessions.request("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "deny"})
    planning = await sessions.create(mode="plan")
    await sessions.send(planning, "[[script:list]]")
    assert (await sessions.until_kind(planning, "tool_result"))["isError"]
    assert [call for call in sessions.runner.ran if call[1]["command"] != "ls"] == []
    assert len(sessions.runner.ran) == 2


async def test_a_session_is_explained_and_listed_with_its_own_agent_mode_and_directory(sessions: SessionClient) -> None:
    await sessions.request(
        "POST", "/api/agents", {"id": "reader", "name": "Reader", "toolPermissions": ["bench/echo"]}, 201
    )
    id = await sessions.create(agentId="reader", mode="plan")
    asked = f"/api/policy/explain?session={id[:9]}&tool=bench"
    hidden = await sessions.request("GET", f"{asked}/broken")
    assert (hidden["verdict"], hidden["principal"]["agent"], hidden["principal"]["mode"]) == (
        "hidden",
        "reader",
        "plan",
    )
    assert (hidden["principal"]["session"], hidden["principal"]["cwd"]) == (id, str(sessions.cwd))
    assert (await sessions.request("GET", f"{asked}/echo"))["verdict"] == "allow"
    assert (await sessions.request("GET", f"{asked}/echo&mode=default"))["verdict"] == "ask"
    assert [each["ref"] for each in await sessions.request("GET", f"/api/tools?session={id}")] == ["bench/echo"]
    assert (await sessions.request("GET", "/api/tools?session=nowhere", status=404))["code"] == "session.unknown"
