"""Run a command of the crib with agents that play scripts: `python scripted_node.py serve …`. Not a test itself.

Each agent has its own process, as real ones do; its process id is written to the folder `AGENTS`. `CLOCK_OFFSET` moves
the wall clock of this node's schedules by that many seconds. With `NEXT_VERSION`, the node runs a future version whose
schema has more tables and columns.
"""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Connection

from toolcrib.agents.sessions.runtime import Brief, SessionHost
from toolcrib.agents.sessions.runtimes import Runtimes
from toolcrib.host import crib as crib
from toolcrib.model.json import Json
from toolcrib.nodes import membership
from toolcrib.store import upgrade
from toolcrib.testing.played import PlayedConversation, PlayedRunner

SCRIPTS: dict[str, Json] = {
    "slow": [
        {"blocks": [{"tool": "mcp__counter__slow", "input": {"marker": "in flight", "seconds": 3600}}]},
        {"blocks": [{"text": "done"}]},
    ],
    "hang": [{"hang_s": 3600}],
    "default": [{"blocks": [{"text": "continued"}]}],
}

NEXT = "9999"
"""The revision of the future version."""
NEXT_SCHEMA = (
    "CREATE TABLE more (id TEXT PRIMARY KEY)",
    *(f"ALTER TABLE {table} ADD COLUMN note TEXT" for table in ("audit", "events", "approvals", "rules", "names")),
    *(
        f"ALTER TABLE {table} ADD COLUMN weight INTEGER NOT NULL DEFAULT 1"
        for table in ("nodes", "sessions", "session_events", "agents", "audit_runs", "tokens")
    ),
    f"UPDATE alembic_version SET version_num = '{NEXT}'",
)


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
    def now(_: Any, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(seconds=offset)

    # Other methods return plain times, because encoders know only those.
    shifted = type("Shifted", (datetime,), {"now": classmethod(now), "fromisoformat": datetime.fromisoformat})
    for module in [each for name, each in sys.modules.items() if name.startswith("toolcrib.agents.schedules.")]:
        if vars(module).get("datetime") is datetime:
            setattr(module, "datetime", shifted)  # noqa: B010 as above


def _be_next_version(version: str) -> None:
    def migrate_further(connection: Connection) -> None:
        for statement in NEXT_SCHEMA:
            connection.exec_driver_sql(statement)

    changes = {"REVISIONS": (*upgrade.REVISIONS, NEXT), "HEAD": NEXT, "migrate": migrate_further}
    for module, name, value in [*((upgrade, *each) for each in changes.items()), (membership, "__version__", version)]:
        setattr(module, name, value)


if __name__ == "__main__":
    _use_played_agents()
    if "NEXT_VERSION" in os.environ:
        _be_next_version(os.environ["NEXT_VERSION"])
    _shift_clock(float(os.environ.get("CLOCK_OFFSET", "0")))
    from toolcrib.cli.entry import run

    run()
