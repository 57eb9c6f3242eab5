"""The kill switch of a home: while it is set, nothing is called, started or sent until the owner resumes.

The state is a marker file in the home. It survives restarts and needs no database, so the CLI can set it even if no
crib responds; a running crib polls it every second. An unreadable marker counts as set. Checking the switch costs one
attribute access, so every call checks it. Nodes that share a database also store the state there, and the marker of
each follows it. Must never be released by anything but `release` and `follow`.
"""

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from toolcrib.model.errors import ConfigError, Denied
from toolcrib.model.json import Json, JsonObject

_LARGEST = 65_536
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class StopState:
    """When the switch was set, by whom and why. `recorded` if the audit log contains it.

    `shared` if it is stored in the database of all nodes, so that its end there counts here too.
    """

    at: str
    by: str
    reason: str | None = None
    recorded: bool = False
    shared: bool = False

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"at": self.at, "by": self.by, "reason": self.reason}

    def to_file(self) -> bytes:
        """Return the content of the marker file."""
        shape = {**self.to_json(), "recorded": self.recorded, "shared": self.shared}
        return orjson.dumps(shape, option=orjson.OPT_APPEND_NEWLINE)


_UNREADABLE = StopState("", "unknown", "The marker file in the home cannot be read.")


class StopSwitch:
    """The switch of one home. `state` is None while it is not set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = self.look()

    @property
    def is_stopped(self) -> bool:
        """Whether the switch is set."""
        return self.state is not None

    def check(self) -> None:
        """Raise `Denied` (`crib.stopped`) while the switch is set."""
        if self.state is not None:
            raise stopped(self.state)

    def look(self) -> StopState | None:
        """Return the state in the marker file. Blocking."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return None
        except OSError:
            return _UNREADABLE
        try:
            shape: Json = orjson.loads(os.read(descriptor, _LARGEST))
        except (OSError, orjson.JSONDecodeError):
            return _UNREADABLE
        finally:
            os.close(descriptor)
        match shape:
            case {"at": str(at), "by": str(by)}:
                reason = shape.get("reason")
                is_recorded, is_shared = shape.get("recorded") is True, shape.get("shared") is True
                return StopState(at, by, reason if isinstance(reason, str) else None, is_recorded, is_shared)
            case _:
                return _UNREADABLE

    def engage(self, by: str, reason: str | None = None) -> StopState:
        """Set the switch: from now on `check` raises. Idempotent; the first state is kept. Blocking.

        Raises `ConfigError` (`home.unsafe`) if the marker cannot be written; the switch is still set in this process.
        """
        if self.state is None:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            self.state = StopState(at, by, reason[:_LONGEST_REASON] if reason else None)
        self._write(self.state)
        return self.state

    def adopt(self) -> bool:
        """Adopt a marker that another process wrote. Returns whether that stopped this process. Blocking."""
        if self.state is not None:
            return False
        self.state = self.look()
        return self.state is not None

    def mark_recorded(self) -> None:
        """Note that the audit log contains this stop. Blocking."""
        if self.state is not None and not self.state.recorded:
            self.state = replace(self.state, recorded=True)
            self._write(self.state)

    def follow(self, shared: StopState | None) -> bool:
        """Adopt the state that all nodes share. Returns whether that changed the state of this node. Blocking.

        A stop that is not shared yet is kept. Raises `ConfigError` (`home.unsafe`) if the marker cannot be changed; the
        state of this process has changed anyway.
        """
        before = self.state
        if shared is None:
            if before is None or not before.shared:
                return False
            self.state = None
            self.release()
            return True
        if before is None or not before.shared:
            self.state = shared if before is None else replace(before, shared=True)
            self._write(self.state)
        return before is None

    def release(self) -> None:
        """Reset the switch. Blocking. Raises `ConfigError` (`home.unsafe`) if the marker cannot be removed."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError("home.unsafe", f"{self.path} cannot be removed: {error.strerror or error}.") from error
        self.state = None

    def _write(self, state: StopState) -> None:
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        try:
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(state.to_file())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            message = f"{self.path} cannot be written: {error.strerror or error}."
            hint = "Check the free disk space and the permissions of the home, then try again."
            raise ConfigError("home.unsafe", message, hint) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def stopped(state: StopState) -> Denied:
    """Return the error for anything attempted while the switch is set."""
    since = f" since {state.at}" if state.at else ""
    reason = f" ({state.reason})" if state.reason else ""
    return Denied("crib.stopped", f"The owner stopped everything{since}{reason}.")
