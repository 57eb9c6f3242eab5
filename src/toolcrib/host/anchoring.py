"""Audit anchors outside of the home: in a file, at a webhook, or as tags of a git repository."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from toolcrib.agents.work.git import Git
from toolcrib.base.files.private import PLAIN
from toolcrib.base.home import Home
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.web import Web
from toolcrib.gate.audit.anchors import MOST, Anchor, read_anchors
from toolcrib.gate.audit.audit import Audit
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

EVERY: Final = 3_600.0
"""Seconds between two automatic anchors."""
GIT: Final = "git:"
_WEB: Final = ("http://", "https://")
_TAG: Final = "toolcrib-audit-"
_TIMEOUT: Final = 30.0
_MAX_ANSWER: Final = 64 * 1024
_LARGEST: Final = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class Anchoring:
    """Writes and reads the anchors of one crib."""

    def __init__(self, audit: Audit, home: Home, web: Web, git: Git) -> None:
        self._audit = audit
        self._home = home
        self._web = web
        self._git = git

    async def write(self, to: str | None) -> Anchor:
        """Create an anchor and write it to `to`. Raises `audit.anchor` for an invalid destination."""
        if to is not None:
            self._check(to)
        anchor = await self._audit.anchor(self._home.marker)
        if to is None:
            return anchor
        if to.startswith(GIT):
            await self._git.tag(_path(to), f"{_TAG}{anchor.head.number:012d}", anchor.to_line().decode())
        elif to.startswith(_WEB):
            await self._post(to, anchor)
        else:
            await anyio.to_thread.run_sync(_append, Path(to), anchor.to_line())
        return anchor

    async def read(self, source: str) -> list[Anchor]:
        """Return the anchors in a file or git repository. Raises `audit.anchor`."""
        if source.startswith(_WEB):
            message = "Anchors cannot be read back from a webhook."
            raise InvalidRequest("audit.anchor", message, "Give a file with the anchors that the webhook received.")
        if source.startswith(GIT):
            lines = [line.encode() for line in await self._git.tag_messages(_path(source), _TAG)]
        else:
            lines = await anyio.to_thread.run_sync(_lines, Path(source))
        return [each for each in read_anchors(lines)[-MOST:] if each.crib == self._home.marker]

    async def follow(self, to: str) -> None:
        """Write an anchor every hour if there are new records. Runs until cancelled."""
        written = 0
        while True:
            try:
                number = (await self._audit.anchor(self._home.marker)).head.number
                if number != written:
                    written = (await self.write(to)).head.number
            except ToolcribError as error:
                logger.warning("Could not anchor the audit: %s", error.message)
            except Exception:  # boundary: retried in an hour
                logger.exception("Could not anchor the audit.")
            await anyio.sleep(EVERY)

    def _check(self, to: str) -> None:
        if to.startswith(_WEB):
            return
        path = Path(_path(to)) if to.startswith(GIT) else Path(to)
        if not path.is_absolute():
            raise InvalidRequest("audit.anchor", f"{path} is not an absolute path.")
        if path.resolve().is_relative_to(self._home.root):
            message = (
                "An anchor inside the home proves nothing: a process that can change the audit can change the anchor."
            )
            raise InvalidRequest("audit.anchor", message)

    async def _post(self, url: str, anchor: Anchor) -> None:
        try:
            with anyio.fail_after(_TIMEOUT):
                async with self._web.client(local_allowed=True, max_body=_MAX_ANSWER) as client:
                    answer = await client.post(url, json=anchor.to_json())
        except TimeoutError:
            raise Unavailable("audit.anchor_failed", f"The webhook did not answer within {_TIMEOUT:g} s.") from None
        except (httpx2.HTTPError, ToolcribError) as error:
            raise Unavailable("audit.anchor_failed", f"The webhook cannot be reached: {error}") from None
        if not answer.is_success:
            raise Unavailable("audit.anchor_failed", f"The webhook answered with status {answer.status_code}.")


def _path(place: str) -> str:
    return place.removeprefix(GIT)


def _append(path: Path, line: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise Unavailable("audit.anchor_failed", f"{path} cannot be written: {error.strerror or error}.") from error


def _lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).splitlines()
    except OSError as error:
        raise InvalidRequest("audit.anchor", f"{path} cannot be read: {error.strerror or error}.") from error
