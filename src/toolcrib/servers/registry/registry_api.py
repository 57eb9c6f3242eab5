"""Reads a registry: over its HTTP API, or from a snapshot file that mirrors it.

The API matches one word against names. A search for several words requests each and ranks the union by how many words
occur in name, title and description. A snapshot is JSON: the answer of the API, a list of its entries, or a list of
`server.json` documents.
"""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

import anyio.to_thread
import httpx2
import orjson

from toolcrib.base.network.guarded_client import DOCUMENT_TIMEOUT, get
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import Web
from toolcrib.model.errors import ConfigError, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, as_list, at
from toolcrib.servers.registry.published_server import PublishedServer, is_latest, parse_published

LARGEST_SNAPSHOT: Final = 256 * 1024 * 1024
LATEST: Final = "latest"
_PAGE: Final = 100
_MOST_WORDS: Final = 5


class RegistryReader(Protocol):
    """Reads published servers from somewhere."""

    @property
    def address(self) -> str:
        """Where it reads from, for people."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is a service on this machine or network."""
        ...

    async def search(self, words: Sequence[str], limit: int) -> list[PublishedServer]:
        """Return the latest versions that match best."""
        ...

    async def find(self, name: str, version: str) -> PublishedServer:
        """Return one version. Raises `registry.unknown`."""
        ...


def open_reader(address: str, web: Web) -> RegistryReader:
    """Return the reader for an address: a URL, or the path of a snapshot."""
    return HttpRegistry(address, web) if "://" in address else SnapshotRegistry(Path(address))


class HttpRegistry:
    """A registry's API. Raises `registry.unavailable` if it does not answer as one."""

    def __init__(self, url: str, web: Web) -> None:
        self._url = url.rstrip("/")
        self._web = web

    @property
    def address(self) -> str:
        """The URL of the API."""
        return self._url

    @property
    def is_local(self) -> bool:
        """Whether it is a service on this machine or network."""
        return check_url(self._url, local_allowed=True).local

    async def search(self, words: Sequence[str], limit: int) -> list[PublishedServer]:
        """Return the latest versions that match best."""
        found: dict[str, PublishedServer] = {}
        for word in list(dict.fromkeys(words))[:_MOST_WORDS] or [""]:
            params = {"version": LATEST, "limit": str(_PAGE)} | ({"search": word} if word else {})
            answer = await self._get("/v0.1/servers", params)
            for server in _latest(as_list(at(answer, "servers")) or ()):
                found.setdefault(server.name, server)
        return ranked(found.values(), words, limit)

    async def find(self, name: str, version: str) -> PublishedServer:
        """Return one version. Raises `registry.unknown`."""
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
        server = parse_published(await self._get(path, {}, unknown=_unknown(name, version)))
        if server is None or server.name != name:
            raise self._unusable("the answer is not a server")
        return server

    async def _get(self, path: str, params: Mapping[str, str], unknown: NotFound | None = None) -> Json:
        try:
            async with (
                self._web.client(local_allowed=True, timeout=DOCUMENT_TIMEOUT) as client,
                self._web.client(local_allowed=False, timeout=DOCUMENT_TIMEOUT) as elsewhere,
            ):
                url = str(httpx2.URL(f"{self._url}{path}", params=params) if params else f"{self._url}{path}")
                response = await get(client, url, {"accept": "application/json"}, elsewhere=elsewhere)
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            raise self._unusable(str(error) or type(error).__name__) from error
        if response.status_code == HTTPStatus.NOT_FOUND and unknown is not None:
            raise unknown
        if response.status_code != HTTPStatus.OK:
            raise self._unusable(f"it answered with HTTP status {response.status_code}")
        try:
            return orjson.loads(response.content)
        except orjson.JSONDecodeError:
            raise self._unusable("the answer is not JSON") from None

    def _unusable(self, reason: str) -> ToolcribError:
        return Unavailable("registry.unavailable", f"The registry at {self._url} cannot be used: {reason.rstrip('.')}.")


class SnapshotRegistry:
    """A file with the content of a registry. It is read again for every request."""

    is_local = False

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self._file)

    async def search(self, words: Sequence[str], limit: int) -> list[PublishedServer]:
        """Return the latest versions that match best."""
        newest = {server.name: server for server in _latest(await self._entries())}
        return ranked(newest.values(), words, limit)

    async def find(self, name: str, version: str) -> PublishedServer:
        """Return one version. Raises `registry.unknown`."""
        entries = [(each, parse_published(each)) for each in await self._entries()]
        named = [(each, server) for each, server in entries if server is not None and server.name == name]
        for each, server in reversed(named):
            if server.version == version or (version == LATEST and is_latest(each)):
                return server
        raise _unknown(name, version)

    async def _entries(self) -> list[Json]:
        return await anyio.to_thread.run_sync(self._load)

    def _load(self) -> list[Json]:
        try:
            if self._file.stat().st_size > LARGEST_SNAPSHOT:
                raise self._unreadable(f"it is larger than {LARGEST_SNAPSHOT} bytes")
            content: Json = orjson.loads(self._file.read_bytes())
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        except orjson.JSONDecodeError:
            raise self._unreadable("it is not JSON") from None
        found = as_list(content) if isinstance(content, list) else as_list(at(content, "servers"))
        if found is None:
            raise self._unreadable("it has no list of servers")
        return found

    def _unreadable(self, reason: str) -> ConfigError:
        return ConfigError("registry.snapshot", f"The snapshot {self._file} cannot be used: {reason}.")


def ranked(servers: Iterable[PublishedServer], words: Sequence[str], limit: int) -> list[PublishedServer]:
    """Return the servers with at least one of the words, those with the most words first, names before descriptions."""
    wanted = [word.casefold() for word in words]

    def score(server: PublishedServer) -> int:
        name = f"{server.name} {server.title}".casefold()
        text = f"{name} {server.description}".casefold()
        return sum(3 * (word in text) + (word in name) for word in wanted)

    scored = [(score(server), server) for server in servers if server.status != "deleted"]
    matching = [(points, server) for points, server in scored if points or not wanted]
    matching.sort(key=lambda each: (-each[0], each[1].name))
    return [server for _, server in matching[:limit]]


def _latest(entries: Iterable[Json]) -> list[PublishedServer]:
    return [server for each in entries if is_latest(each) and (server := parse_published(each)) is not None]


def _unknown(name: str, version: str) -> NotFound:
    shown = name if version == LATEST else f"{name} in version {version}"
    return NotFound("registry.unknown", f"The registry has no server {shown}.")
