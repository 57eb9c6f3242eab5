"""Calls of MCP clients that need an approval: the client's user answers if the token may approve, else the owner."""

from typing import Any

import anyio
import pytest
from mcp.types import ElicitResult

from integration.gate.permissions.shop_lab import ShopLab, background_call
from lab import ModeName
from toolcrib.gate.approvals import consent
from toolcrib.model.errors import Denied, NotFound, ToolcribError
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ERAS)


class ElicitationCallback:
    """Answers the elicitations of a client."""

    def __init__(self, result: ElicitResult) -> None:
        self.result = result
        self.messages: list[str] = []

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        self.messages.append(params.message)
        return self.result


@pytest.fixture
async def asking_lab(lab: ShopLab) -> ShopLab:
    """Return a crib with an ask rule for `shop/sell`."""
    await lab.owner.permissions.add_rule({"effect": "ask", "pattern": "shop/sell"})
    return lab


@both_eras
async def test_user_of_a_client_that_may_approve_can_approve(asking_lab: ShopLab, era: ModeName) -> None:
    callback = ElicitationCallback(ElicitResult(action="accept", content={"decision": "approve"}))
    secret = await asking_lab.token("ide", mayApprove=True)
    async with asking_lab.mcp(secret, era, elicitation_callback=callback) as client:
        result = await client.call_tool("shop_sell", {"what": "tea"})
    assert "sold 1 tea" in str(result.content)
    assert len(callback.messages) == 1
    assert "shop/sell" in callback.messages[0]
    assert '"tea"' in callback.messages[0]
    intent, outcome = await asking_lab.records()
    assert intent["approvalId"] == outcome["approvalId"]
    [approval] = await asking_lab.owner.permissions.approvals()
    assert (approval["status"], approval["decidedBy"]) == ("approved", "ide")
    answered, messages = await asking_lab.owner.audit(server="toolcrib", tool="approvals.answer")
    assert (messages["phase"], answered["phase"], answered["isError"]) == ("intent", "outcome", False)
    assert (answered["door"], answered["principal"]["name"]) == ("mcp", "ide")
    assert answered["arguments"] == {"id": approval["id"], "decision": "approve", "scope": "once"}


@both_eras
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ElicitResult(action="decline"), "A person denied this call."),
        (ElicitResult(action="accept", content={"decision": "deny", "reason": "No tea."}), "No tea."),
    ],
)
async def test_user_of_a_client_that_may_approve_can_decline(
    asking_lab: ShopLab, era: ModeName, result: ElicitResult, expected: str
) -> None:
    secret = await asking_lab.token("ide", mayApprove=True)
    async with asking_lab.mcp(secret, era, elicitation_callback=ElicitationCallback(result)) as client:
        answer = await client.call_tool("shop_sell", {"what": "tea"})
    assert (answer.is_error, expected in str(answer.content)) == (True, True)
    assert asking_lab.shop.sold == []


@both_eras
async def test_cancelled_elicitation_leaves_the_approval_to_the_owner(asking_lab: ShopLab, era: ModeName) -> None:
    secret = await asking_lab.token("ide", mayApprove=True)
    callback = ElicitationCallback(ElicitResult(action="cancel"))
    async with (
        asking_lab.mcp(secret, era, elicitation_callback=callback) as client,
        background_call(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        await asking_lab.answer((await asking_lab.pending_approval())["id"], "approve")
    assert "sold 1 tea" in str(call.result.content)


@both_eras
async def test_owner_can_answer_before_the_user_of_the_client(asking_lab: ShopLab, era: ModeName) -> None:
    async def slow(context: object, params: object) -> ElicitResult:
        await asking_lab.answer((await asking_lab.pending_approval())["id"], "deny", reason="The owner was faster.")
        return ElicitResult(action="accept", content={"decision": "approve"})

    secret = await asking_lab.token("ide", mayApprove=True)
    async with asking_lab.mcp(secret, era, elicitation_callback=slow) as client:
        with anyio.fail_after(20):
            result = await client.call_tool("shop_sell", {"what": "tea"})
    assert (result.is_error, "The owner was faster." in str(result.content)) == (True, True)
    assert asking_lab.shop.sold == []


@both_eras
async def test_call_of_a_token_without_approval_right_waits_for_the_owner(
    asking_lab: ShopLab, era: ModeName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consent, "SIGN_OF_LIFE", 0.05)
    messages: list[str | None] = []
    callback = ElicitationCallback(ElicitResult(action="accept", content={"decision": "approve"}))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    async with (
        asking_lab.mcp(await asking_lab.token("ide"), era, elicitation_callback=callback) as client,
        background_call(lambda: client.call_tool("shop_sell", {"what": "tea"}, progress_callback=on_progress)) as call,
    ):
        approval = await asking_lab.pending_approval()
        assert asking_lab.shop.sold == []
        await asking_lab.answer(approval["id"], "approve")
    assert "sold 1 tea" in str(call.result.content)
    assert callback.messages == []
    assert approval["id"] in str(messages[0])


async def test_programs_cannot_answer_approvals(asking_lab: ShopLab) -> None:
    agent = await asking_lab.owner.create_agent({"name": "Clerk"})
    secrets = {
        "plain": await asking_lab.token("plain", source="api"),
        "other ide": await asking_lab.token("other-ide", mayApprove=True),
        "agent": await asking_lab.token("agent", source="api", agent=agent["id"], mayApprove=True),
    }
    async with (
        asking_lab.mcp(await asking_lab.token("ide"), "2026-07-28") as client,
        background_call(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        approval = await asking_lab.pending_approval()
        path = f"/api/approvals/{approval['id']}"
        yes: JsonObject = {"decision": "approve"}
        for secret in secrets.values():
            async with asking_lab.rest(secret) as program:
                with pytest.raises((NotFound, Denied)):
                    await program.permissions.answer(approval["id"], yes)
                with pytest.raises((NotFound, Denied)):
                    await program.permissions.approval(approval["id"])
        async with asking_lab.http() as owner:
            for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE"):
                await owner.request(method, path, params={"decision": "approve"})
            attempts = [{"agent": "x", "source": "agent"}, {"source": "ide"}, {"source": "scheduler"}]
            for attempt in attempts:
                assert (await owner.post(path, json=yes, params=attempt)).status_code in (403, 422)
            foreign = await owner.post(path, json=yes, headers={"origin": "http://evil.example"})
            assert foreign.status_code == 403
            form = await owner.post(path, data={"decision": "approve"})
            assert form.status_code in (415, 422, 400)
        for by in ("agent", "ide", "scheduler"):
            with pytest.raises(ToolcribError):
                await asking_lab.crib.approvals.answer(
                    approval["id"], "approve", by=asking_lab.crib.principals.owner(by, session="s")
                )
        assert (await asking_lab.owner.permissions.approval(approval["id"]))["status"] == "pending"
        assert asking_lab.shop.sold == []
        await asking_lab.answer(approval["id"], "deny")
    assert call.result.is_error


async def test_api_token_that_may_approve_answers_for_other_tokens(asking_lab: ShopLab) -> None:
    callback = await asking_lab.token("phone", source="api", mayApprove=True)
    async with (
        asking_lab.mcp(await asking_lab.token("ide"), "2026-07-28") as client,
        asking_lab.rest(callback) as phone,
        background_call(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        approval = await asking_lab.pending_approval()
        await phone.permissions.answer(approval["id"], {"decision": "approve"})
    assert "sold 1 tea" in str(call.result.content)
