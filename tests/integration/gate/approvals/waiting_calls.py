"""A program whose calls wait for approvals until it is killed.

Usage: `python waiting_calls.py DATABASE`. For each line on standard input it forks a process that prints `pid NUMBER`,
then `left ID` for every approval that stays unanswered, `asked ID` for every one that is approved soon after, and
`ran ID` for every call that runs; `ended` when the process is gone. Forking avoids repeated imports.
"""

import asyncio
import importlib
import os
import sys

from integration.gate.approvals.requests import OWNER, approval_request, open_approvals
from toolcrib.model.principals import Principal
from toolcrib.store.engine import open_store


def write_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def make_calls(database: str) -> None:
    """Make calls in eight sessions at a time; leave every third approval unanswered."""
    async with open_store(database) as store, open_approvals(store) as harness:

        async def call(session: str, number: int) -> None:
            principal = Principal("session", session, "web", session=session)
            async with harness.approvals.open(
                approval_request({"number": number}, principal=principal), seconds=5
            ) as pending:
                id = pending.approval.id
                if number % 3 == 0:
                    write_line(f"left {id}")
                else:
                    write_line(f"asked {id}")
                    answers.append(asyncio.create_task(harness.approvals.answer(id, "approve", by=OWNER)))
                if (await harness.approvals.wait(pending)).approved:
                    write_line(f"ran {id}")

        async def keep_calling(session: str) -> None:
            for number in range(1_000_000):
                if number % 3:
                    await call(session, number)
                else:
                    unanswered.append(asyncio.create_task(call(session, number)))
                    await asyncio.sleep(0)

        answers: list[asyncio.Task[object]] = []
        unanswered: list[asyncio.Task[None]] = []
        await asyncio.gather(*(keep_calling(f"session-{number}") for number in range(8)))


def main() -> None:
    database = sys.argv[1]
    if database.startswith("postgresql:"):
        importlib.import_module("toolcrib.store.postgres")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            write_line(f"pid {os.getpid()}")
            asyncio.run(make_calls(database))
            os._exit(0)
        os.waitpid(child, 0)
        write_line("ended")


if __name__ == "__main__":
    main()
