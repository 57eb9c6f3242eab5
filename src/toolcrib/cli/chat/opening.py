"""Starts a chat: finds or creates the session, the first event to display, and the terminal."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcrib.base.settings import Environment
from toolcrib.cli import output
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, loads
from toolcrib.web.api_client.api_client import ApiClient

if TYPE_CHECKING:
    from toolcrib.cli.chat.input import Keys
    from toolcrib.cli.chat.screen import Screen

_USUAL_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested session: a new one with these options, or an existing one."""

    agent: str | None = None
    resume: str | None = None
    mode: str | None = None
    model: str | None = None
    cwd: str | None = None
    record: bool = False


async def begin_or_resume(client: ApiClient, wanted: Wanted) -> JsonObject:
    """Return the session: created, found, or imported from Claude Code."""
    changes = _without_none(mode=wanted.mode, model=wanted.model)
    if wanted.resume is None:
        record: JsonObject = {"record": True} if wanted.record else {}
        return await client.sessions.create(changes | record | _without_none(agentId=wanted.agent, cwd=wanted.cwd))
    try:
        session = await client.sessions.get(wanted.resume)
    except NotFound:
        kept = await _find_unmanaged(client, wanted.resume)
        if kept is None:
            raise
        return await client.sessions.create(changes | _without_none(resume=str(kept["id"]), cwd=str(kept["cwd"])))
    return await client.sessions.change(str(session["id"]), changes) if changes else session


async def _find_unmanaged(client: ApiClient, id: str) -> JsonObject | None:
    """Return the conversation with this id that only Claude Code has stored."""
    found = await client.sessions.list(found=True, limit=1000)
    return next((each for each in found if each.get("origin") == "claude_code" and each["id"] == id), None)


def _without_none(**values: str | None) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


async def last_turn(client: ApiClient, session: JsonObject) -> int:
    """Return the sequence number of the event before the last turn, so that a resumed chat displays that turn."""
    begun, rest = 0, b""
    if session["lastSeq"]:
        async for piece in client.sessions.transcript(str(session["id"])):
            *lines, rest = (rest + piece).split(b"\n")
            for event in map(loads, filter(None, lines)):
                if event["kind"] == "user_message" and not event["queued"]:
                    begun = int(event["seq"]) - 1
    return begun


def terminal(environment: Environment) -> "tuple[Screen, Keys]":
    """Return the screen and keyboard of the controlling terminal."""
    from toolcrib.cli.chat.input import Keys  # not available on every platform
    from toolcrib.cli.chat.screen import Screen

    screen = Screen(output.draw, _columns, colours=not environment.get("NO_COLOR"))
    return screen, Keys(sys.stdin.fileno(), output.draw)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH
