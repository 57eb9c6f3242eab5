"""MCP clients whose calls need a person: the one behind the client where its token may approve, else the owner."""

from typing import Any

import anyio
import pytest
from mcp.types import ElicitResult

from integration.gate.permissions.answering import Desk, calling
from lab import ModeName
from toolcrib.gate.approvals import consent
from toolcrib.model.errors import Denied, NotFound, ToolcribError
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ERAS)


class Person:
    """Answers what a client is asked."""

    def __init__(self, result: ElicitResult) -> None:
        self.result = result
        self.asked: list[str] = []

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return self.result


@pytest.fixture
async def asking(desk: Desk) -> Desk:
    """A crib in which a person is asked before anything is sold."""
    await desk.owner.permissions.add_rule({"effect": "ask", "pattern": "shop/sell"})
    return desk


@both_eras
async def test_the_person_behind_a_client_that_may_approve_approves(asking: Desk, era: ModeName) -> None:
    person = Person(ElicitResult(action="accept", content={"decision": "approve"}))
    secret = await asking.token("ide", mayApprove=True)
    async with asking.mcp(secret, era, elicitation_callback=person) as client:
        result = await client.call_tool("shop_sell", {"what": "tea"})
    assert "sold 1 tea" in str(result.content)
    assert len(person.asked) == 1
    assert "shop/sell" in person.asked[0]
    assert '"tea"' in person.asked[0]
    intent, outcome = await asking.records()
    assert intent["approvalId"] == outcome["approvalId"]
    [question] = await asking.owner.permissions.approvals()
    assert (question["status"], question["decidedBy"]) == ("approved", "ide")
    answered, asked = await asking.owner.audit(server="toolcrib", tool="approvals.answer")
    assert (asked["phase"], answered["phase"], answered["isError"]) == ("intent", "outcome", False)
    assert (answered["door"], answered["principal"]["name"]) == ("mcp", "ide")
    assert answered["arguments"] == {"id": question["id"], "decision": "approve", "scope": "once"}


@both_eras
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (ElicitResult(action="decline"), "A person denied this call."),
        (ElicitResult(action="accept", content={"decision": "deny", "reason": "No tea."}), "No tea."),
    ],
)
async def test_or_declines(asking: Desk, era: ModeName, result: ElicitResult, said: str) -> None:
    secret = await asking.token("ide", mayApprove=True)
    async with asking.mcp(secret, era, elicitation_callback=Person(result)) as client:
        answer = await client.call_tool("shop_sell", {"what": "tea"})
    assert (answer.is_error, said in str(answer.content)) == (True, True)
    assert asking.shop.sold == []


@both_eras
async def test_who_only_closes_the_question_leaves_it_to_the_owner(asking: Desk, era: ModeName) -> None:
    secret = await asking.token("ide", mayApprove=True)
    person = Person(ElicitResult(action="cancel"))
    async with (
        asking.mcp(secret, era, elicitation_callback=person) as client,
        calling(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        await asking.answer((await asking.question())["id"], "approve")
    assert "sold 1 tea" in str(call.gave.content)


@both_eras
async def test_the_owner_may_be_faster_than_the_person_behind_the_client(asking: Desk, era: ModeName) -> None:
    async def slow(context: object, params: object) -> ElicitResult:
        await asking.answer((await asking.question())["id"], "deny", reason="The owner was faster.")
        return ElicitResult(action="accept", content={"decision": "approve"})

    secret = await asking.token("ide", mayApprove=True)
    async with asking.mcp(secret, era, elicitation_callback=slow) as client:
        with anyio.fail_after(20):
            result = await client.call_tool("shop_sell", {"what": "tea"})
    assert (result.is_error, "The owner was faster." in str(result.content)) == (True, True)
    assert asking.shop.sold == []


@both_eras
async def test_the_call_of_a_token_without_a_say_waits_for_the_owner_with_progress(
    asking: Desk, era: ModeName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consent, "SIGN_OF_LIFE", 0.05)
    told: list[str | None] = []
    person = Person(ElicitResult(action="accept", content={"decision": "approve"}))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with (
        asking.mcp(await asking.token("ide"), era, elicitation_callback=person) as client,
        calling(lambda: client.call_tool("shop_sell", {"what": "tea"}, progress_callback=on_progress)) as call,
    ):
        question = await asking.question()
        assert asking.shop.sold == []
        await asking.answer(question["id"], "approve")
    assert "sold 1 tea" in str(call.gave.content)
    assert person.asked == []
    assert question["id"] in str(told[0])


async def test_programs_cannot_answer_whatever_they_try(asking: Desk) -> None:
    agent = await asking.owner.create_agent({"name": "Clerk"})
    secrets = {
        "plain": await asking.token("plain", source="api"),
        "other ide": await asking.token("other-ide", mayApprove=True),
        "agent": await asking.token("agent", source="api", agent=agent["id"], mayApprove=True),
    }
    async with (
        asking.mcp(await asking.token("ide"), "2026-07-28") as client,
        calling(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        question = await asking.question()
        path = f"/api/approvals/{question['id']}"
        yes: JsonObject = {"decision": "approve"}
        for secret in secrets.values():
            async with asking.rest(secret) as program:
                with pytest.raises((NotFound, Denied)):
                    await program.permissions.answer(question["id"], yes)
                with pytest.raises((NotFound, Denied)):
                    await program.permissions.approval(question["id"])
        async with asking.http() as owner:
            for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE"):
                await owner.request(method, path, params={"decision": "approve"})
            tricks = [{"agent": "x", "source": "agent"}, {"source": "ide"}, {"source": "scheduler"}]
            for trick in tricks:
                assert (await owner.post(path, json=yes, params=trick)).status_code in (403, 422)
            foreign = await owner.post(path, json=yes, headers={"origin": "http://evil.example"})
            assert foreign.status_code == 403
            form = await owner.post(path, data={"decision": "approve"})
            assert form.status_code in (415, 422, 400)
        for by in ("agent", "ide", "scheduler"):
            with pytest.raises(ToolcribError):
                await asking.crib.approvals.answer(
                    question["id"], "approve", by=asking.crib.principals.owner(by, session="s")
                )
        assert (await asking.owner.permissions.approval(question["id"]))["status"] == "pending"
        assert asking.shop.sold == []
        await asking.answer(question["id"], "deny")
    assert call.gave.is_error


async def test_a_token_of_a_person_answers_for_others_if_it_may(asking: Desk) -> None:
    person = await asking.token("phone", source="api", mayApprove=True)
    async with (
        asking.mcp(await asking.token("ide"), "2026-07-28") as client,
        asking.rest(person) as phone,
        calling(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        question = await asking.question()
        await phone.permissions.answer(question["id"], {"decision": "approve"})
    assert "sold 1 tea" in str(call.gave.content)
