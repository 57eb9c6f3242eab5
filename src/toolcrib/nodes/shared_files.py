"""Files of the home that all nodes of a cluster share: server definitions, trust, and Python tools.

They are in the database, encrypted with the node secret, so that only a node can change them there: they decide what
runs. A new node gets them when it starts. A change in one home reaches the others before their next call. If a file was
changed on both sides, the database wins, and the local content is kept beside the file as `….replaced`.

Settings (`toolcrib.toml`) belong to one machine and are not shared. Must never write outside of the home.
"""

import base64
import hashlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.base.files.private import replace_private
from toolcrib.base.home import Home
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import as_object, as_text, dumps, loads
from toolcrib.nodes.cluster_secret import ClusterSecret
from toolcrib.store.engine import Store
from toolcrib.store.sealed_values import load_all_sealed, save_sealed

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_LARGEST: Final = 1024 * 1024
_PREFIX: Final = "file "
_PURPOSE: Final = "files"
_TOOL: Final = re.compile(r"tools(/\w+)*/\w+\.py", re.ASCII)


class SharedFiles:
    """The shared files of one home. Call `open` before the files are read, then run `follow` as a task."""

    def __init__(self, store: Store, secret: ClusterSecret, home: Home) -> None:
        self._store = store
        self._secret = secret
        self._root = home.root
        self._single = (home.mcp_json, home.trust_file)
        self._tools = home.tools
        self._synced: dict[str, bytes | None] = {}
        """The content of each file when it was last equal here and in the database; None if it was removed."""
        self._seen: dict[str, str] = {}
        self._lock = anyio.Lock()

    async def open(self) -> None:
        """Take over the files of the cluster, and add those that only this home has."""
        await self.pull()
        await self.push()

    async def follow(self) -> None:
        """Store changed files in the database until cancelled."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                await self.push()
            except ToolcribError as error:
                logger.warning("Could not share changed files with other nodes: %s", error)

    async def pull(self) -> bool:
        """Write the files that other nodes changed into this home; return whether there were any."""
        has_changed = False
        async with self._lock:
            for name, body in (await load_all_sealed(self._store, _PREFIX)).items():
                path, digest = name.removeprefix(_PREFIX), hashlib.sha256(body).hexdigest()
                if self._seen.get(path) == digest or not self._is_shared(path):
                    continue
                stored = as_object(loads(self._secret.open(_PURPOSE, body, path))) or {}
                text = as_text(stored.get("content"))
                content = None if text is None else base64.b64decode(text)
                await anyio.to_thread.run_sync(self._write, path, content)
                self._seen[path], self._synced[path] = digest, content
                has_changed = True
        return has_changed

    async def push(self) -> None:
        """Store the files that changed in this home. Raises `Unavailable`."""
        async with self._lock:
            present = await anyio.to_thread.run_sync(self._read)
            for path in sorted({*present, *self._synced}):
                content = present.get(path)
                if content == self._synced.get(path):
                    continue
                text = None if content is None else base64.b64encode(content).decode()
                body = self._secret.seal(_PURPOSE, dumps({"content": text}), path)
                await save_sealed(self._store, _PREFIX + path, body)
                self._seen[path], self._synced[path] = hashlib.sha256(body).hexdigest(), content

    def _is_shared(self, path: str) -> bool:
        return _TOOL.fullmatch(path) is not None or any(path == each.name for each in self._single)

    def _paths(self) -> Iterator[Path]:
        yield from self._single
        yield from (path for path in self._tools.rglob("*.py") if self._is_shared(self._relative(path)))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _read(self) -> dict[str, bytes]:
        """Return the content of all shared files, without links and very large ones. Blocking."""
        found: dict[str, bytes] = {}
        for path in self._paths():
            try:
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                    found[self._relative(path)] = path.read_bytes()
            except OSError as error:
                logger.warning("%s cannot be read, so it is not shared: %s", path, error.strerror)
        return found

    def _write(self, path: str, content: bytes | None) -> None:
        """Replace a file, keeping a local change beside it. Blocking."""
        place = self._root / path
        local = place.read_bytes() if place.is_file() else None
        if local == content:
            return
        if local is not None and local != self._synced.get(path):
            replace_private(place.with_name(f"{place.name}.replaced"), local)
            logger.warning("%s was replaced by that of the other nodes; its old content is beside it.", place)
        if content is None:
            place.unlink(missing_ok=True)
        else:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(place, content)
