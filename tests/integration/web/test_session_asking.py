"""What a session asks a person over HTTP: calls to be approved, and questions of the agent itself."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.web.crib import Running
from integration.web.talks import BOUND, COLOUR, Talk, kind, kinds, talking
from toolcrib.model.json import Json, JsonObject

pytestmark = pytest.mark.anyio


@pytest.fixture
async def talk(running: Running, tmp_path: Path) -> AsyncGenerator[Talk]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with talking(running, cwd) as talk:
        yield talk


async def test_a_call_waits_for_its_approval_and_goes_on_after_it(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:echo]]")
    asked = await talk.until_kind(id, "approval_required")
    assert (asked["server"], asked["tool"], asked["arguments"]) == ("bench", "echo", {"text": "ab", "times": 2})
    assert (await talk.ask("GET", f"/api/sessions/{id}"))["state"] == "waiting"
    (listed,) = await talk.ask("GET", "/api/approvals?status=pending")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["door"]) == (
        "approval",
        asked["approvalId"],
        id,
        "session",
    )
    assert listed["toolCallId"] == asked["toolCallId"]
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"})
    events = await talk.until_done(id)
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


async def test_a_refusal_reaches_the_model_with_its_reason(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:echo]]")
    asked = await talk.until_kind(id, "approval_required")
    body = {"decision": "deny", "reason": "Not on a Sunday."}
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", body)
    events = await talk.until_done(id)
    result = next(filter(kind("tool_result"), events))
    assert result["isError"]
    assert "Not on a Sunday." in result["content"][0]["text"]
    assert "Not on a Sunday." in [event["text"] for event in events if event["kind"] == "text_message"][-1]


async def test_edited_arguments_are_the_ones_that_run(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:echo]]")
    asked = await talk.until_kind(id, "approval_required")
    body = {"decision": "approve", "arguments": {"text": "z", "times": 3}}
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", body)
    assert (await talk.until_kind(id, "tool_result"))["content"] == [{"type": "text", "text": "zzz"}]
    assert (await talk.until_kind(id, "approval_resolved"))["arguments"] == {"text": "z", "times": 3}


async def test_an_answer_for_the_session_is_asked_once(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:echo]]")
    asked = await talk.until_kind(id, "approval_required")
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve", "scope": "session"})
    last = (await talk.until_done(id))[-1]["seq"]
    await talk.say(id, "[[script:echo]]")
    assert "approval_required" not in kinds(await talk.until_done(id, last))


async def test_an_interrupt_withdraws_what_was_asked(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:echo]]")
    asked = await talk.until_kind(id, "approval_required")
    await talk.ask("POST", f"/api/sessions/{id}/interrupt")
    events = await talk.until_done(id)
    assert next(filter(kind("approval_resolved"), events))["decision"] == "withdrawn"
    problem = await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"}, 409)
    assert problem["code"] == "approval.decided"


async def asked_of(talk: Talk) -> tuple[str, JsonObject]:
    """A session whose agent asks something."""
    id = await talk.create()
    await talk.say(id, "[[script:ask]]")
    return id, await talk.until_kind(id, "question_prompt")


async def test_a_question_of_the_agent_is_listed_and_answered(talk: Talk) -> None:
    id, asked = await asked_of(talk)
    (listed,) = await talk.ask("GET", "/api/approvals")
    assert (listed["kind"], listed["id"], listed["sessionId"], listed["status"]) == (
        "question",
        asked["questionId"],
        id,
        "pending",
    )
    assert listed["questions"] == asked["questions"]
    assert listed["questions"][0]["question"] == COLOUR
    assert await talk.ask("GET", f"/api/approvals/{asked['questionId']}") == listed
    assert await talk.ask("GET", "/api/approvals?status=approved") == []
    assert await talk.ask("GET", "/api/approvals?session=other") == []
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    answered = await talk.ask("POST", path, {"answers": {COLOUR: "Blue"}})
    assert answered == {"questionId": asked["questionId"], "answers": {COLOUR: "Blue"}}
    events = await talk.until_done(id)
    assert next(filter(kind("question_answered"), events))["answers"] == {COLOUR: "Blue"}
    assert "Blue" in [event["text"] for event in events if event["kind"] == "text_message"][-1]
    assert await talk.ask("GET", "/api/approvals") == []
    assert (await talk.ask("POST", path, {"answers": {COLOUR: "Red"}}, 409))["code"] == "question.answered"


async def test_several_choices_are_one_answer(talk: Talk) -> None:
    id, asked = await asked_of(talk)
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    answered = await talk.ask("POST", path, {"answers": {COLOUR: ["Red", "Blue"]}})
    assert answered["answers"] == {COLOUR: "Red, Blue"}


async def test_an_answer_that_does_not_fit_leaves_the_question_open(talk: Talk) -> None:
    id, asked = await asked_of(talk)
    path = f"/api/sessions/{id}/questions/{asked['questionId']}"
    wrong: list[tuple[JsonObject, str]] = [
        ({"Something else?": "Blue"}, "question.answer"), ({COLOUR: " "}, "question.answer"),
        ({COLOUR: []}, "question.answer"), ({}, "request.invalid"), ({COLOUR: 5}, "request.invalid"),
    ]  # fmt: skip
    for answers, code in wrong:
        assert (await talk.ask("POST", path, {"answers": answers}, 422))["code"] == code, answers
    other = await talk.create()
    elsewhere = f"/api/sessions/{other}/questions/{asked['questionId']}"
    assert (await talk.ask("POST", elsewhere, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    nothing = f"/api/sessions/{id}/questions/nothing"
    assert (await talk.ask("POST", nothing, {"answers": {COLOUR: "Red"}}, 404))["code"] == "question.unknown"
    problem = await talk.ask("POST", f"/api/approvals/{asked['questionId']}", {"decision": "approve"}, 422)
    assert path in problem["hint"]
    await talk.ask("POST", path, {"answers": {COLOUR: "Red"}})


async def test_a_question_of_an_answer_that_is_interrupted_is_closed(talk: Talk) -> None:
    id, asked = await asked_of(talk)
    await talk.ask("POST", f"/api/sessions/{id}/interrupt")
    events = await talk.until_done(id)
    closed = next(filter(kind("question_answered"), events))
    assert (closed["questionId"], closed["answers"]) == (asked["questionId"], {})
    assert await talk.ask("GET", "/api/approvals") == []


async def test_questions_and_approvals_are_one_list_the_newest_first(talk: Talk) -> None:
    first, question = await asked_of(talk)
    second = await talk.create()
    await talk.say(second, "[[script:echo]]")
    approval = await talk.until_kind(second, "approval_required")
    listed = await talk.ask("GET", "/api/approvals?status=pending")
    assert [each["id"] for each in listed] == [approval["approvalId"], question["questionId"]]
    assert [each["id"] for each in await talk.ask("GET", f"/api/approvals?session={first}")] == [question["questionId"]]
    assert len(await talk.ask("GET", "/api/approvals?limit=1")) == 1


async def test_a_token_that_may_approve_sees_no_questions_of_agents(talk: Talk) -> None:
    await asked_of(talk)
    made = await talk.ask("POST", "/api/tokens", {"name": "helper", "source": "api", "mayApprove": True}, 201)
    headers = {"authorization": f"Bearer {made['secret']}"}
    assert (await talk.client.get("/api/approvals", headers=headers)).json() == []


async def test_a_stopped_crib_leaves_nobody_waiting(talk: Talk) -> None:
    id, _ = await asked_of(talk)
    with anyio.fail_after(BOUND):
        await talk.ask("DELETE", f"/api/sessions/{id}", status=204)
    assert await talk.ask("GET", "/api/approvals") == []


async def test_who_asks_outside_of_a_session_is_answered_at_the_approvals(talk: Talk) -> None:
    async with anyio.create_task_group() as tasks:
        body = {"arguments": {"question": "Ready?", "options": ["Aye", "Nay"]}}
        tasks.start_soon(talk.ask, "POST", "/api/tools/crew/crib_ask_owner/call", body)
        asked = await _waiting(talk)
        assert (asked["kind"], asked["sessionId"]) == ("question", "")
        at = f"/api/approvals/{asked['id']}"
        refused = await talk.ask("POST", at, {"decision": "approve"}, 422)
        assert f"{at}/answers" in refused["hint"]
        answered = await talk.ask("POST", f"{at}/answers", {"answers": {"Ready?": "Aye"}})
        assert answered == {"questionId": asked["id"], "answers": {"Ready?": "Aye"}}
    assert await talk.ask("GET", "/api/approvals?status=pending") == []


async def _waiting(talk: Talk) -> JsonObject:
    """The first question that waits; looked for whenever something happens in the crib."""
    with anyio.fail_after(BOUND):
        async for _ in talk.running.holding.crib.feed.follow(0):
            found: list[JsonObject] = await talk.ask("GET", "/api/approvals?status=pending")
            if found:
                return found[0]
    raise AssertionError("The feed has ended.")


async def test_a_session_that_leaves_plan_mode_is_on_record(talk: Talk) -> None:
    step: Json = {"blocks": [{"tool": "ExitPlanMode", "input": {"plan": "First this, then that."}}]}
    talk.runner.scripts["leave"] = [step, {"blocks": [{"text": "I begin."}]}]
    id = await talk.create(mode="plan")
    await talk.say(id, "[[script:leave]]")
    asked = await talk.until_kind(id, "approval_required")
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve"})
    await talk.until_done(id)
    assert (await talk.ask("GET", f"/api/sessions/{id}"))["mode"] == "default"
    [record] = await talk.ask("GET", "/api/audit?server=toolcrib&tool=sessions.mode")
    assert record["arguments"] == {"id": id, "before": "plan", "after": "default"}


async def test_always_for_one_command_runs_that_command_in_no_wider_place(talk: Talk) -> None:
    id = await talk.create()
    await talk.say(id, "[[script:list]]")
    asked = await talk.until_kind(id, "approval_required")
    await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "approve", "scope": "always"})
    await talk.until_done(id)
    (rule,) = await talk.ask("GET", "/api/policy/rules")
    assert rule["principal"] == {"kind": "session", "source": "api"}
    assert {"pointer": "/command", "test": "equals", "value": "ls"} in rule["conditions"]

    again = await talk.create()
    await talk.say(again, "[[script:list]]")
    assert "approval_required" not in kinds(await talk.until_done(again))
    for body, script in (({}, "remove"), ({"source": "cli"}, "list")):
        other = await talk.create(**body)
        await talk.say(other, f"[[script:{script}]]")
        asked = await talk.until_kind(other, "approval_required")
        await talk.ask("POST", f"/api/approvals/{asked['approvalId']}", {"decision": "deny"})
    planning = await talk.create(mode="plan")
    await talk.say(planning, "[[script:list]]")
    assert (await talk.until_kind(planning, "tool_result"))["isError"]
    assert [call for call in talk.runner.ran if call[1]["command"] != "ls"] == []
    assert len(talk.runner.ran) == 2


async def test_a_session_is_explained_and_listed_with_its_own_agent_mode_and_directory(talk: Talk) -> None:
    await talk.ask("POST", "/api/agents", {"id": "reader", "name": "Reader", "toolPermissions": ["bench/echo"]}, 201)
    id = await talk.create(agentId="reader", mode="plan")
    asked = f"/api/policy/explain?session={id[:9]}&tool=bench"
    hidden = await talk.ask("GET", f"{asked}/broken")
    assert (hidden["verdict"], hidden["principal"]["agent"], hidden["principal"]["mode"]) == (
        "hidden",
        "reader",
        "plan",
    )
    assert (hidden["principal"]["session"], hidden["principal"]["cwd"]) == (id, str(talk.cwd))
    assert (await talk.ask("GET", f"{asked}/echo"))["verdict"] == "allow"
    assert (await talk.ask("GET", f"{asked}/echo&mode=default"))["verdict"] == "ask"
    assert [each["ref"] for each in await talk.ask("GET", f"/api/tools?session={id}")] == ["bench/echo"]
    assert (await talk.ask("GET", "/api/tools?session=nowhere", status=404))["code"] == "session.unknown"
