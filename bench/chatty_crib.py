"""A crib with many sessions whose agents produce events on request: `python -m bench.chatty_crib HOME`.

A prompt `5000 0.001` is answered with that many events, that many seconds apart.
"""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import uvloop

from toolcrib.agents.sessions.runtime import Brief, SessionHost
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import ServerHealth, TurnEnd
from toolcrib.web.run import hold

STORED = 1_000
TEXT = "A piece of what a model says, about as long as they are when they come one by one. "


class Talker:
    """A runtime without a model."""

    name = "talker"

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator["Talk"]:
        """Begin."""
        yield Talk(host)


class Talk:
    """A conversation with it."""

    runtime = None

    def __init__(self, host: SessionHost) -> None:
        self._desk = host

    async def turn(self, text: str) -> TurnEnd:
        """Talk."""
        many, rest = text.split()
        for number in range(int(many)):
            # Each is a message of its own, so that none is put to the one before.
            self._desk.emit("text_delta", {"messageId": f"msg_{number}", "text": TEXT})
            await anyio.sleep(float(rest))
        return TurnEnd("completed")

    async def interrupt(self) -> None:
        """Never needed."""

    async def set_mode(self, mode: Mode) -> None:
        """Means nothing."""

    async def set_model(self, model: str | None) -> None:
        """Means nothing."""

    async def servers(self) -> tuple[ServerHealth, ...]:
        """There are none."""
        return ()


async def fill(crib: Crib, cwd: str) -> None:
    """Have many sessions."""
    for number in range(STORED):
        await crib.sessions.create(NewSession("api", cwd, title=f"Session {number}", runner=Talker.name))


async def main(home: Path) -> None:
    """Serve until ended."""
    environment = Environment({"HOME": str(home.parent)})
    async with hold(Settings(home=home), kind="serve", port=0, environment=environment) as holding:
        holding.crib.runners.add(Talker())
        await fill(holding.crib, str(home.parent))
        print(json.dumps({"event": "ready", "mcp": holding.mcp_url}), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
