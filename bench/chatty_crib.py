"""A crib with many sessions whose agents produce events on request: `python -m bench.chatty_crib HOME`.

The prompt `5000 0.001` is answered with 5000 events, 0.001 seconds apart.

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


class EventRunner:
    """A runtime without a model."""

    name = "events"

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator["EventConversation"]:
        """Open a conversation."""
        yield EventConversation(host)


class EventConversation:
    """A conversation of this runtime."""

    runtime = None

    def __init__(self, host: SessionHost) -> None:
        self._desk = host

    async def turn(self, text: str) -> TurnEnd:
        """Emit the requested events."""
        many, rest = text.split()
        for number in range(int(many)):
            # Each is a separate message, so that none is appended to the one before.
            self._desk.emit("text_delta", {"messageId": f"msg_{number}", "text": TEXT})
            await anyio.sleep(float(rest))
        return TurnEnd("completed")

    async def interrupt(self) -> None:
        """Do nothing."""

    async def set_mode(self, mode: Mode) -> None:
        """Do nothing."""

    async def set_model(self, model: str | None) -> None:
        """Do nothing."""

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return no servers."""
        return ()


async def fill(crib: Crib, cwd: str) -> None:
    """Create many sessions."""
    for number in range(STORED):
        await crib.sessions.create(NewSession("api", cwd, title=f"Session {number}", runner=EventRunner.name))


async def main(home: Path) -> None:
    """Serve until terminated."""
    environment = Environment({"HOME": str(home.parent)})
    async with hold(Settings(home=home), kind="serve", port=0, environment=environment) as holding:
        holding.crib.runners.add(EventRunner())
        await fill(holding.crib, str(home.parent))
        print(json.dumps({"event": "ready", "mcp": holding.mcp_url}), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
