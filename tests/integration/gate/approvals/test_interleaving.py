"""Whatever happens at once to many questions: each ends once, and everybody is told the same end."""

import random

import anyio
import pytest

from integration.gate.approvals.requests import OWNER, PRINCIPALS, SESSION, Desk, desk, question
from toolcrib.model.approvals import ApprovalAnswer, Verb
from toolcrib.model.errors import ToolcribError
from toolcrib.model.principals import Principal
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

QUESTIONS = 60


class Fate:
    """One question, and all that happens to it."""

    def __init__(self, at: Desk, chance: random.Random) -> None:
        self.at = at
        self.chance = chance
        self.heard: ApprovalAnswer | None = None
        self.won: list[ApprovalAnswer] = []
        self.refused: list[str] = []
        self.id = ""

    async def run(self) -> None:
        seconds, patience = self.chance.choice([(0.0, 30.0), (0.02, 30.0), (30.0, 0.02), (30.0, 30.0), (30.0, 30.0)])
        repliers = [self.chance.choice([OWNER, SESSION, PRINCIPALS.owner("ide")]) for _ in range(3)]
        if (seconds, patience) == (30.0, 30.0):
            repliers.append(OWNER)  # else nothing would end it
        with anyio.move_on_after(patience):
            async with self.at.approvals.open(question(), seconds=seconds) as asked:
                self.id = asked.approval.id
                async with anyio.create_task_group() as tasks:
                    for by in repliers:
                        tasks.start_soon(self.reply, by)
                    self.heard = await self.at.approvals.wait(asked)

    async def reply(self, by: Principal) -> None:
        await anyio.sleep(self.chance.uniform(0, 0.03))
        verb: Verb = "approve" if self.chance.random() < 0.5 else "deny"
        try:
            self.won.append(await self.at.approvals.answer(self.id, verb, by=by))
        except ToolcribError as error:
            self.refused.append(error.code)


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_question_ends_once_and_the_same_for_all(database: str, seed: int) -> None:
    chance = random.Random(seed)
    async with open_store(database) as store, desk(store) as at:
        fates = [Fate(at, chance) for _ in range(QUESTIONS)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for fate in fates:
                    tasks.start_soon(fate.run)
        rows = {row.id: row for row in await at.approvals.find()}
    told = {data["approvalId"]: data["decision"] for data in at.resolved()}
    assert len(told) == len(at.resolved())
    assert {data["approvalId"] for kind, data in at.events if kind == "approval_required"} == told.keys()
    assert {row.status for row in rows.values()} <= {"approved", "denied", "expired", "withdrawn"}
    for fate in fates:
        assert len(fate.won) <= 1
        assert set(fate.refused) <= {"approval.decided", "approval.not_a_person"}
        if fate.id:
            assert told[fate.id] == rows[fate.id].status
        if fate.heard is not None:
            assert fate.heard.decision == rows[fate.id].status
        if fate.won:
            assert fate.won[0].decision == rows[fate.id].status
    assert {row.status for row in rows.values()} >= {"approved", "denied", "expired"}
