"""Runs a command of the crib with agents that play scripts: `python played_node.py serve …`. Not a test itself.

Each agent has a process of its own, as real ones do, whose id is written to the folder `AGENTS`. `CLOCK_OFFSET` shifts
the wall clock of this node by so many seconds.
"""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import anyio

from toolcrib.agents.sessions.runtime import Brief, SessionHost
from toolcrib.agents.sessions.runtimes import Runtimes
from toolcrib.host import crib as crib
from toolcrib.model.json import Json
from toolcrib.testing.played import PlayedConversation, PlayedRunner

SCRIPTS: dict[str, Json] = {
    "slow": [
        {"blocks": [{"tool": "mcp__counter__slow", "input": {"marker": "in flight", "seconds": 3600}}]},
        {"blocks": [{"text": "done"}]},
    ],
    "hang": [{"hang_s": 3600}],
    "default": [{"blocks": [{"text": "continued"}]}],
}


class AgentRunner(PlayedRunner):
    """Plays scripts while a process of the agent runs."""

    name = "claude"

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        process = await anyio.open_process(["sleep", "3600"])
        file = Path(os.environ["AGENTS"]) / f"{process.pid}"
        file.write_text(brief.session, encoding="utf-8")
        try:
            async with super().open(brief, host) as conversation:
                yield conversation
        finally:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


def _use_played_agents() -> None:
    create = Runtimes.__init__

    def create_with_agents(self: Runtimes, *given: Any, **named: Any) -> None:
        create(self, *given, **named)
        self.add(AgentRunner(SCRIPTS))

    setattr(Runtimes, "__init__", create_with_agents)  # noqa: B010 the type checker knows the original


def _shift_clock(offset: float) -> None:
    class Shifted(datetime):
        """A wall clock that is wrong."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=offset)

    for module in [each for name, each in sys.modules.items() if name.startswith("toolcrib.")]:
        if vars(module).get("datetime") is datetime:
            setattr(module, "datetime", Shifted)  # noqa: B010 as above


if __name__ == "__main__":
    _use_played_agents()
    _shift_clock(float(os.environ.get("CLOCK_OFFSET", "0")))
    from toolcrib.cli.entry import run

    run()
