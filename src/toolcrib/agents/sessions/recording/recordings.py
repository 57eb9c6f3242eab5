"""The recordings of a home: which sessions are recorded, and their files.

A session is recorded if that was asked for when it was created, or if the settings say so for all sessions.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from toolcrib.agents.sessions.recording.recorded_runtime import ModelAccess, RecordedRuntime
from toolcrib.agents.sessions.recording.recording import Mask, Recording, RecordingWriter, parse_recording
from toolcrib.agents.sessions.runtime import Brief, Conversation, Runtime, SessionHost
from toolcrib.base.files.private import create_private
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, dumps

REPLAYABLE = "claude"
"""The runtime whose requests to the model can be recorded and replayed."""


class Recordings:
    """The files with recordings, one for each session, in one directory."""

    def __init__(self, directory: Path, mask: Mask, *, records_all: bool) -> None:
        self.mask = mask
        self._directory = directory
        self._records_all = records_all
        self._writers: dict[str, RecordingWriter] = {}

    def start(self, session: str) -> None:
        """Record a session from its next process on. Idempotent."""
        file = self._file(session)
        if not file.exists():
            self._directory.mkdir(mode=0o700, exist_ok=True)
            create_private(file, b"")

    def has(self, session: str) -> bool:
        """Return whether a session is recorded."""
        return self._file(session).is_file()

    def writer(self, session: str) -> RecordingWriter | None:
        """Return the writer for a session; None if it is not recorded."""
        if self._records_all:
            self.start(session)
        if not self.has(session):
            return None
        if session not in self._writers:
            self._writers[session] = RecordingWriter(self._file(session), self.mask)
        return self._writers[session]

    def on_approval(self, kind: str, data: JsonObject) -> None:
        """Add a request for approval or its outcome to the recording of its session."""
        writer = self._writers.get(str(data.get("sessionId")))
        if writer is not None:
            writer.approval(kind, data)

    def read(self, session: str) -> bytes:
        """Return the lines of a recording. Raises `recording.unknown`. Blocking."""
        try:
            return self._file(session).read_bytes()
        except OSError as error:
            message = f"Session {session} was not recorded."
            raise NotFound("recording.unknown", message) from error

    def delete(self, session: str) -> None:
        """Delete the recording of a session, if there is one."""
        self._writers.pop(session, None)
        self._file(session).unlink(missing_ok=True)

    def _file(self, session: str) -> Path:
        return self._directory / f"{session}.jsonl"


def with_events(lines: bytes, events: list[JsonObject]) -> bytes:
    """Return a recording with the events of its session: a file that is complete by itself."""
    return lines + b"".join(dumps({"kind": "event", "event": event}) + b"\n" for event in events)


def load_recording(lines: bytes, name: str = "") -> Recording:
    """Return the recording in these lines. Raises `recording.invalid`."""
    return parse_recording(lines.splitlines(), name)


class RecordableRuntimes:
    """Returns runtimes that record the sessions which are to be recorded."""

    def __init__(self, get: Callable[[str], Runtime], recordings: Recordings, access: ModelAccess) -> None:
        self._get = get
        self._recordings = recordings
        self._access = access

    def get(self, name: str) -> Runtime:
        """Return the runtime of this name; raises as `Runtimes.get`."""
        runtime = self._get(name)
        return _RecordableRuntime(runtime, self._recordings, self._access) if name == REPLAYABLE else runtime


class _RecordableRuntime:
    """A runtime that decides when it is opened whether to record."""

    def __init__(self, runtime: Runtime, recordings: Recordings, access: ModelAccess) -> None:
        self.name = runtime.name
        self._runtime = runtime
        self._recordings = recordings
        self._access = access

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Open a conversation, recorded if its session is."""
        writer = self._recordings.writer(brief.session)
        runtime = self._runtime if writer is None else RecordedRuntime(self._runtime, writer, self._access)
        async with runtime.open(brief, host) as conversation:
            yield conversation
