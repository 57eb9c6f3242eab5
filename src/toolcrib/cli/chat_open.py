"""How a chat begins: the session it is about, where in it to begin, and the terminal.

Above: `chat`. Below: the client, `chat_screen`, `chat_input`.
"""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from toolcrib.cli import output
from toolcrib.client import Client
from toolcrib.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.settings import Environment

if TYPE_CHECKING:
    from toolcrib.cli.chat_input import Keys
    from toolcrib.cli.chat_screen import Screen

_USUAL_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which session the person wants: a new one like this, or an old one."""

    agent: str | None = None
    resume: str | None = None
    mode: str | None = None
    model: str | None = None
    cwd: str | None = None


async def begin_or_resume(client: Client, wanted: Wanted) -> JsonObject:
    """The session: made, found, or taken over from what Claude Code has kept by itself."""
    changes = _given(mode=wanted.mode, model=wanted.model)
    if wanted.resume is None:
        return await client.sessions.create(changes | _given(agentId=wanted.agent, cwd=wanted.cwd))
    try:
        session = await client.sessions.get(wanted.resume)
    except NotFound:
        kept = await _kept_elsewhere(client, wanted.resume)
        if kept is None:
            raise
        return await client.sessions.create(changes | _given(resume=str(kept["id"]), cwd=str(kept["cwd"])))
    return await client.sessions.change(str(session["id"]), changes) if changes else session


async def _kept_elsewhere(client: Client, id: str) -> JsonObject | None:
    """The conversation of this id that only Claude Code knows."""
    found = await client.sessions.list(found=True, limit=1000)
    return next((each for each in found if each.get("origin") == "claude_code" and each["id"] == id), None)


def _given(**values: str | None) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


async def last_turn(client: Client, session: JsonObject) -> int:
    """The number of the event after which the last turn begins: somebody who comes back wants to see that much."""
    begun, rest = 0, b""
    if session["lastSeq"]:
        async for piece in client.sessions.transcript(str(session["id"])):
            *lines, rest = (rest + piece).split(b"\n")
            for event in map(orjson.loads, filter(None, lines)):
                if event["kind"] == "user_message" and not event["queued"]:
                    begun = int(event["seq"]) - 1
    return begun


def terminal(environment: Environment) -> "tuple[Screen, Keys]":
    """The terminal that this command was started at."""
    from toolcrib.cli.chat_input import Keys  # needs what not every system has
    from toolcrib.cli.chat_screen import Screen

    screen = Screen(output.draw, _columns, colours=not environment.get("NO_COLOR"))
    return screen, Keys(sys.stdin.fileno(), output.draw)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH
