"""A call that a person has to approve: what it waits for, what ends the wait, and what runs in the end."""

from pathlib import Path

import anyio
import pytest

from integration.gate.permissions.answering import SELL, Desk, calling, open_desk, unanswered
from toolcrib.gate.approvals import consent
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio


def refusal(error: Exception | None) -> tuple[str, str]:
    assert isinstance(error, ToolcribError), error
    return error.code, error.message


async def test_an_approved_call_runs_exactly_the_bytes_that_were_shown_and_only_then_is_on_record(desk: Desk) -> None:
    given: JsonObject = {"what": "tea\u202e\u200b", "amount": 3}
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, given)) as call:
            question = await desk.question()
            assert question["arguments"] == given
            assert "\u202e" not in question["shown"]["text"]
            assert (await desk.records(), desk.shop.sold) == ([], [])
            await desk.answer(question["id"], "approve")
        assert call.gave["content"][0]["text"] == "sold 3 tea\u202e\u200b"
    assert desk.shop.sold == [("tea\u202e\u200b", 3)]
    intent, outcome = await desk.records()
    assert [intent["phase"], outcome["phase"]] == ["intent", "outcome"]
    assert {intent["approvalId"], outcome["approvalId"]} == {question["id"]}
    assert (await desk.owner.permissions.approval(question["id"]))["decidedAt"] <= intent["at"]


async def test_the_library_waits_for_the_same_answer(desk: Desk) -> None:
    asker = desk.crib.principals.owner("api", mode="default", session="s1")
    async with calling(lambda: desk.crib.call(SELL, {"what": "tea"}, principal=asker)) as call:
        await desk.answer((await desk.question())["id"], "approve", scope="session")
    assert call.gave.content[0]["text"] == "sold 1 tea"
    again = await desk.crib.call(SELL, {"what": "milk"}, principal=asker)
    assert not again.is_error
    rule = next(each for each in await desk.owner.permissions.rules() if each.get("session") == "s1")
    assert (rule["pattern"], bool(rule["definitionHash"])) == ("shop/sell", True)


async def test_a_denied_call_tells_the_model_why_and_leaves_one_record(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
            question = await desk.question()
            await desk.answer(question["id"], "deny", reason="We are out of tea.")
        assert refusal(call.raised) == ("approval.denied", "A person denied this call: We are out of tea.")
    [record] = await desk.records()
    assert (record["phase"], record["isError"], record["approvalId"]) == ("outcome", True, question["id"])
    assert desk.shop.sold == []


async def test_edited_arguments_are_checked_decided_and_recorded_anew(desk: Desk) -> None:
    sparing = {"pointer": "/amount", "test": "range", "value": {"min": 10}}
    await desk.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell", "conditions": [sparing]})
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea", "amount": 5})) as call:
            question = await desk.question()
            with pytest.raises(InvalidRequest, match="amount"):
                await desk.answer(question["id"], "approve", arguments={"what": "tea", "amount": "many"})
            await desk.answer(question["id"], "approve", arguments={"what": "milk", "amount": 2})
        assert call.gave["content"][0]["text"] == "sold 2 milk"
        assert (await desk.records())[0]["arguments"] == {"what": "milk", "amount": 2}
        async with calling(lambda: robot.call(SELL, {"what": "tea", "amount": 5})) as call:
            await desk.answer((await desk.question())["id"], "approve", arguments={"what": "tea", "amount": 50})
        assert refusal(call.raised)[0] == "policy.denied"
    assert desk.shop.sold == [("milk", 2)]
    last = (await desk.records())[-1]
    assert (last["arguments"]["amount"], last["decision"], last["isError"]) == (50, "deny", True)


async def test_when_nobody_answers_in_time_the_call_is_denied(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered(monkeypatch, 0.05)
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        with pytest.raises(Denied, match="was not answered within"), anyio.fail_after(10):
            await robot.call(SELL, {"what": "tea"})
    [question] = await desk.owner.permissions.approvals()
    assert (question["status"], desk.shop.sold) == ("expired", [])
    with pytest.raises(Conflict):
        await desk.answer(question["id"], "approve")


async def test_only_the_first_answer_counts(desk: Desk) -> None:
    secret = await desk.token("robot", source="api")
    async with desk.rest(secret) as robot, calling(lambda: robot.call(SELL, {"what": "tea"})):
        question = await desk.question()
        await desk.answer(question["id"], "approve")
        async with desk.http() as http:
            second = await http.post(f"/api/approvals/{question['id']}", json={"decision": "deny"})
        assert (second.status_code, second.json()["code"]) == (409, "approval.decided")
    assert desk.shop.sold == [("tea", 1)]


async def test_a_call_that_is_given_up_takes_its_question_with_it(desk: Desk) -> None:
    secret = await desk.token("robot", source="api")
    async with desk.rest(secret) as robot, calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
        question = await desk.question()
        call.scope.cancel()

    async def withdrawn() -> bool:
        return (await desk.owner.permissions.approval(question["id"]))["status"] == "withdrawn"

    await desk.until(withdrawn)
    with pytest.raises(Conflict):
        await desk.answer(question["id"], "approve")
    assert desk.shop.sold == []
    [record] = await desk.records()
    assert (record["phase"], record["isError"]) == ("outcome", True)


async def test_a_crib_that_stops_denies_what_waits(tmp_path: Path) -> None:
    open_now = anyio.Event()
    opened: list[Desk] = []

    async def call() -> object:
        await open_now.wait()
        asker = opened[0].crib.principals.owner("api", mode="default")
        return await opened[0].crib.call(SELL, {"what": "tea"}, principal=asker)

    async with calling(call) as waiting, open_desk(tmp_path) as desk:
        opened.append(desk)
        open_now.set()
        question = await desk.question()
    code, message = refusal(waiting.raised)
    assert (code, "stopped" in message, opened[0].shop.sold) == ("approval.denied", True, [])
    async with open_desk(tmp_path) as desk:
        assert (await desk.owner.permissions.approval(question["id"]))["status"] == "expired"
        with pytest.raises(Conflict):
            await desk.answer(question["id"], "approve")


@pytest.mark.parametrize("conditioned", [False, True])
async def test_a_deny_rule_that_came_while_a_person_thought_wins(desk: Desk, conditioned: bool) -> None:
    conditions = [{"pointer": "/what", "test": "equals", "value": "tea"}] if conditioned else None
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
            question = await desk.question()
            rule: JsonObject = {"effect": "deny", "pattern": "shop/*"}
            await desk.owner.permissions.add_rule(rule | ({"conditions": conditions} if conditions else {}))
            await desk.answer(question["id"], "approve")
        assert isinstance(call.raised, Denied if conditioned else NotFound)
    assert desk.shop.sold == []
    [record] = await desk.records()
    assert (record["phase"], record["approvalId"]) == ("outcome", question["id"])


async def test_a_definition_that_changed_while_a_person_thought_is_not_what_they_approved(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
            question = await desk.question()

            @tool
            async def sell(what: str, amount: int = 1) -> str:
                """Give everything away."""
                desk.shop.sold.append(("all", amount))
                return what

            desk.replace(ToolServer("shop", tools=[sell]))
            await desk.answer(question["id"], "approve")
        assert refusal(call.raised)[0] == "tool.changed"
    assert desk.shop.sold == []


async def test_a_rule_that_always_allows_holds_for_the_definition_it_was_given_for(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea"})):
            await desk.answer((await desk.question())["id"], "approve", scope="always")
        await robot.call(SELL, {"what": "milk"})

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Sell, in another way."""
            return what

        desk.replace(ToolServer("shop", tools=[sell]))
        async with calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
            await desk.answer((await desk.question())["id"], "deny")
        assert refusal(call.raised)[0] == "approval.denied"


async def test_every_question_is_waited_for_with_signs_of_life(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "SIGN_OF_LIFE", 0.02)
    told: list[tuple[float, str | None]] = []
    enough = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        if len(told) >= 3:
            enough.set()

    asker = desk.crib.principals.owner("api", mode="default")
    call_gate = desk.crib.gate.call
    async with calling(lambda: call_gate(asker, SELL, {"what": "tea"}, door="library", progress=report)):
        with anyio.fail_after(5):
            await enough.wait()
        question = await desk.question()
        await desk.answer(question["id"], "approve")
    numbers = [number for number, _ in told]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 0.01, "what the tool reports afterwards has to be more"
    assert question["id"] in str(told[0][1])
