"""The conversations that Claude Code records itself: `<config dir>/projects/<directory>/<session id>.jsonl`.

The directory name is the working directory with every non-alphanumeric character replaced by `-`; a long one is
truncated and ends in a hash. The line format belongs to Claude Code and may change, so unknown lines are skipped.

Must never write, and never open a path derived from an id that is not a UUID.
"""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

import anyio.to_thread
import orjson

from toolcrib.model.json import Json, JsonObject, is_array, is_object, loads
from toolcrib.model.sessions import SessionEvent, SessionEventKind

LONGEST_NAME: Final = 200
"""Characters after which Claude Code truncates a directory name."""
LONGEST_LINE: Final = 32 * 1_048_576
_END: Final = 65_536
"""Bytes read from each end of a file to determine its title and directory."""
_PAGE: Final = 500
_TITLE_LENGTH: Final = 80
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOTE = re.compile(r"\s*(<[a-z][\w-]*>|\[Request interrupted)")
"""Matches notes that Claude Code itself inserts into user messages."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A conversation of Claude Code. `title` is its name, else its first prompt."""

    id: str
    cwd: str
    title: str | None
    updated_at: datetime
    size: int

    def to_json(self) -> JsonObject:
        """Return the public JSON representation; `origin` distinguishes it from the crib's sessions."""
        shape: JsonObject = {
            "id": self.id,
            "origin": "claude_code",
            "cwd": self.cwd,
            "updatedAt": self.updated_at.isoformat(timespec="milliseconds"),
            "bytes": self.size,
        }
        return shape if self.title is None else {**shape, "title": self.title}


class Transcripts:
    """The conversations in Claude Code's configuration directory, except those of the crib's own sessions.

    `known` returns the ids of the crib's sessions in a directory, or of all for None.
    """

    def __init__(self, config_dir: Path, known: Callable[[str | None], Awaitable[Set[str]]]) -> None:
        self._projects = config_dir / "projects"
        self._known = known

    async def count(self, cwd: str) -> int:
        """Return the number of conversations in a working directory."""
        known = await self._known(cwd)
        return await anyio.to_thread.run_sync(lambda: sum(file.stem not in known for file in self._files(cwd)))

    async def find(self, cwd: str | None, limit: int) -> list[FoundSession]:
        """Return the newest conversations of a directory, or of all, most recently used first."""
        known = await self._known(cwd)

        def work() -> list[FoundSession]:
            files = [file for file in self._files(cwd) if file.stem not in known]
            looked = (_look(file, cwd) for file in sorted(files, key=_written_at, reverse=True)[:limit])
            return [each for each in looked if each is not None]

        return await anyio.to_thread.run_sync(work)

    async def holds(self, id: str) -> bool:
        """Return whether a conversation with this id exists."""
        return await anyio.to_thread.run_sync(self._file, id) is not None

    async def read(self, id: str) -> AsyncIterator[SessionEvent]:
        """Yield a conversation as session events in file order; nothing if it does not exist."""
        file = await anyio.to_thread.run_sync(self._file, id)
        if file is None:
            return
        events = _events(file, id)
        while page := await anyio.to_thread.run_sync(lambda: list(islice(events, _PAGE))):
            for event in page:
                yield event

    def _files(self, cwd: str | None) -> Iterator[Path]:
        for folder in self._folders(cwd):
            yield from (file for file in folder.glob("*.jsonl") if _ID.fullmatch(file.stem))

    def _folders(self, cwd: str | None) -> Iterator[Path]:
        name = _NOT_ALPHANUMERIC.sub("-", cwd or "")
        if cwd is None:
            yield from self._projects.glob("*")
        elif len(name) <= LONGEST_NAME:
            yield self._projects / name
        else:
            yield from self._projects.glob(f"{name[:LONGEST_NAME]}-*")

    def _file(self, id: str) -> Path | None:
        return next(self._projects.glob(f"*/{id}.jsonl"), None) if _ID.fullmatch(id) else None


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def _look(path: Path, cwd: str | None) -> FoundSession | None:
    """Read a file's summary from its two ends; None if it is unreadable or has no messages."""
    try:
        with path.open("rb") as file:
            kept = os.fstat(file.fileno())
            head = file.read(_END)
            file.seek(max(0, kept.st_size - _END))
            tail = file.read(_END)
    except OSError:
        return None
    first, last = list(_parse_lines(head.splitlines())), list(_parse_lines(tail.splitlines()))
    title = _title([*first, *last])
    if title is None and not any(entry.get("type") in ("user", "assistant") for entry in first):
        return None
    at = datetime.fromtimestamp(kept.st_mtime, UTC)
    place = next((entry["cwd"] for entry in first if isinstance(entry.get("cwd"), str)), cwd or "")
    return FoundSession(path.stem, place, title, at, kept.st_size)


def _title(entries: list[JsonObject]) -> str | None:
    for key in ("customTitle", "aiTitle", "summary"):
        named = [text for entry in entries if isinstance(text := entry.get(key), str) and text.strip()]
        if named:
            return named[-1].strip()[:_TITLE_LENGTH]
    user_entries = (entry for entry in entries if entry.get("type") == "user" and not _is_aside(entry))
    prompts = (text for entry in user_entries if (text := _prompt(entry)) is not None)
    return next((text.split("\n", 1)[0].strip()[:_TITLE_LENGTH] for text in prompts), None)


def _is_aside(entry: JsonObject) -> bool:
    """Return whether a line is a program note or belongs to a sub-agent."""
    return bool(entry.get("isMeta") or entry.get("isSidechain"))


def _prompt(entry: JsonObject) -> str | None:
    """Return the text a person wrote; None for tool results and program notes."""
    texts = [str(block.get("text", "")) for block in _blocks(entry) if block.get("type") == "text"]
    text = "\n".join(each for each in texts if not _NOTE.match(each)).strip()
    return text or None


def _blocks(entry: JsonObject) -> list[JsonObject]:
    message: Json = entry.get("message")
    content: Json = message.get("content") if is_object(message) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if is_object(block)] if is_array(content) else []


def _parse_lines(lines: list[bytes] | Iterator[bytes]) -> Iterator[JsonObject]:
    for line in lines:
        try:
            entry: Json = loads(line)
        except orjson.JSONDecodeError:
            continue  # truncated or damaged
        if is_object(entry):
            yield entry


def _events(path: Path, session: str) -> Iterator[SessionEvent]:
    seq = 0
    for entry in _parse_lines(_lines(path)):
        if _is_aside(entry):
            continue
        at: Json = entry.get("timestamp")
        for kind, data in _events_of(entry):
            seq += 1
            yield SessionEvent(seq, at if isinstance(at, str) else "", session, kind, data)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def _events_of(entry: JsonObject) -> Iterator[tuple[SessionEventKind, JsonObject]]:
    """Yield the events of one line."""
    id = str(entry.get("uuid", ""))
    if entry.get("type") == "user":
        if (prompt := _prompt(entry)) is not None:
            yield "user_message", {"messageId": id, "content": prompt, "queued": False}
        for block in _blocks(entry):
            if block.get("type") == "tool_result":
                yield "tool_result", _result(block)
    elif entry.get("type") == "assistant":
        for block in _blocks(entry):
            if block.get("type") == "text":
                yield "text_message", {"messageId": id, "text": str(block.get("text", ""))}
            elif block.get("type") == "tool_use":
                call: JsonObject = {"toolCallId": str(block.get("id", ""))}
                yield "tool_call_start", {**call, "toolName": str(block.get("name", ""))}
                yield "tool_call_end", {**call, "arguments": block.get("input")}


def _result(block: JsonObject) -> JsonObject:
    content: Json = block.get("content")
    shown: Json = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {
        "toolCallId": str(block.get("tool_use_id", "")),
        "isError": block.get("is_error") is True,
        "content": shown if is_array(shown) else [],
        "durationMs": 0,
    }
