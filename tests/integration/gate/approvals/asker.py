"""A program whose calls wait for a person, until it is killed. Not a test itself.

Usage: `python asker.py DATABASE`. For each line on standard input it forks a process that prints `pid NUMBER`, then
`left ID` for every question that nobody answers, `asked ID` for every one that is approved a moment later, and `ran ID`
whenever a call is made; `ended` when the process is gone. Forking spares each of them the imports.
"""

import asyncio
import importlib
import os
import sys

from integration.gate.approvals.requests import OWNER, desk, question
from toolcrib.model.principals import Principal
from toolcrib.store.engine import open_store


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def calls(database: str) -> None:
    """Eight sessions at a time; of every three questions one is left open."""
    async with open_store(database) as store, desk(store) as at:

        async def call(session: str, number: int) -> None:
            asker = Principal("session", session, "web", session=session)
            async with at.approvals.open(question({"number": number}, principal=asker), seconds=5) as asked:
                id = asked.approval.id
                if number % 3 == 0:
                    say(f"left {id}")
                else:
                    say(f"asked {id}")
                    answering.append(asyncio.create_task(at.approvals.answer(id, "approve", by=OWNER)))
                if (await at.approvals.wait(asked)).approved:
                    say(f"ran {id}")

        async def keep_calling(session: str) -> None:
            for number in range(1_000_000):
                if number % 3:
                    await call(session, number)
                else:
                    left.append(asyncio.create_task(call(session, number)))
                    await asyncio.sleep(0)

        answering: list[asyncio.Task[object]] = []
        left: list[asyncio.Task[None]] = []
        await asyncio.gather(*(keep_calling(f"session-{number}") for number in range(8)))


def main() -> None:
    database = sys.argv[1]
    if database.startswith("postgresql:"):
        importlib.import_module("toolcrib.store.postgres")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            asyncio.run(calls(database))
            os._exit(0)
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main()
