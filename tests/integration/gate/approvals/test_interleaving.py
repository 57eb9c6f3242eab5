"""Concurrent answers, timeouts and cancellations: each approval ends once, with the same result for all."""

import random

import anyio
import pytest

from integration.gate.approvals.requests import (
    OWNER,
    PRINCIPALS,
    SESSION,
    ApprovalsHarness,
    approval_request,
    open_approvals,
)
from toolcrib.model.approvals import ApprovalAnswer, Verb
from toolcrib.model.errors import ToolcribError
from toolcrib.model.principals import Principal
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

APPROVALS = 60


class RandomApproval:
    """One approval with random answers and deadlines."""

    def __init__(self, harness: ApprovalsHarness, rng: random.Random) -> None:
        self.harness = harness
        self.rng = rng
        self.result: ApprovalAnswer | None = None
        self.accepted: list[ApprovalAnswer] = []
        self.refused: list[str] = []
        self.id = ""

    async def run(self) -> None:
        seconds, cancel_after = self.rng.choice([(0.0, 30.0), (0.02, 30.0), (30.0, 0.02), (30.0, 30.0), (30.0, 30.0)])
        answerers = [self.rng.choice([OWNER, SESSION, PRINCIPALS.owner("ide")]) for _ in range(3)]
        if (seconds, cancel_after) == (30.0, 30.0):
            answerers.append(OWNER)  # without it nothing would end the approval
        with anyio.move_on_after(cancel_after):
            async with self.harness.approvals.open(approval_request(), seconds=seconds) as pending:
                self.id = pending.approval.id
                async with anyio.create_task_group() as tasks:
                    for by in answerers:
                        tasks.start_soon(self.answer, by)
                    self.result = await self.harness.approvals.wait(pending)

    async def answer(self, by: Principal) -> None:
        await anyio.sleep(self.rng.uniform(0, 0.03))
        verb: Verb = "approve" if self.rng.random() < 0.5 else "deny"
        try:
            self.accepted.append(await self.harness.approvals.answer(self.id, verb, by=by))
        except ToolcribError as error:
            self.refused.append(error.code)


@pytest.mark.parametrize("seed", [1, 2])
async def test_concurrent_events_end_every_approval_once(database: str, seed: int) -> None:
    rng = random.Random(seed)
    async with open_store(database) as store, open_approvals(store) as harness:
        approvals = [RandomApproval(harness, rng) for _ in range(APPROVALS)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for each in approvals:
                    tasks.start_soon(each.run)
        rows = {row.id: row for row in await harness.approvals.find()}
    published = {data["approvalId"]: data["decision"] for data in harness.resolved()}
    assert len(published) == len(harness.resolved())
    assert {data["approvalId"] for kind, data in harness.events if kind == "approval_required"} == published.keys()
    assert {row.status for row in rows.values()} <= {"approved", "denied", "expired", "withdrawn"}
    for each in approvals:
        assert len(each.accepted) <= 1
        assert set(each.refused) <= {"approval.decided", "approval.not_a_person"}
        if each.id:
            assert published[each.id] == rows[each.id].status
        if each.result is not None:
            assert each.result.decision == rows[each.id].status
        if each.accepted:
            assert each.accepted[0].decision == rows[each.id].status
    assert {row.status for row in rows.values()} >= {"approved", "denied", "expired"}
