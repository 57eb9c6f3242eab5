"""Lists servers without a crib: reads the config files, and the tool counts that an earlier crib stored.

`toolcrib mcp list` uses this while no crib runs. A running crib is asked instead, because it knows the connections.

Must never start, resolve or contact anything, nor write to the database.
"""

import gc
import sqlite3
from collections.abc import Collection, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from toolcrib.base.home import Home, HomeLock, find_holder, owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.cli.logs import start_logging
from toolcrib.cli.options import working_directory
from toolcrib.model.json import JsonObject
from toolcrib.model.look_alikes import twins
from toolcrib.model.servers import Discovery, ServerEntry, UpstreamStatus
from toolcrib.servers.discover import BUILT_IN
from toolcrib.servers.project_view import ProjectViews
from toolcrib.servers.server_status import ServerStatus

_SQLITE = "sqlite:///"
_QUERY_SIZE = 500

Listing = tuple[list[JsonObject], list[JsonObject]]
"""The servers and the problems of whole files, in the shapes of the REST API."""


def list_offline(settings: Settings, environment: Environment) -> Listing | None:
    """Return the servers of the working directory; None if only a crib can list them.

    That is the case while a crib holds the home, and with a database that is not a file.
    """
    home = prepare_home(settings.home)
    if not settings.database.startswith(_SQLITE) or not _is_free(home):
        return None
    start_logging(home, settings.log_level, [owner_token(home)])
    with _paused_collector():
        return _listing(home, settings, environment)


def _listing(home: Home, settings: Settings, environment: Environment) -> Listing:
    cwd = working_directory()
    place = Path(cwd) if cwd is not None else settings.default_cwd
    user_home = Path(environment.get("HOME") or Path.home())
    found = ProjectViews(home, environment, user_home).of(place).discovery
    bodies = _stored_offers(Path(settings.database.removeprefix(_SQLITE)), found)
    alike = twins((*(entry.name for entry in found.servers), *BUILT_IN))
    servers = [
        ServerStatus(entry, _status(entry, bodies), alike.get(entry.name, ())).to_json() for entry in found.servers
    ]
    return servers, [problem.to_json() for problem in found.problems]


@contextmanager
def _paused_collector() -> Generator[None]:
    """Pause the cyclic garbage collector: a long list consists of many objects that live until the process ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _is_free(home: Home) -> bool:
    """Return whether no process holds the home. One that is starting counts as a holder."""
    if find_holder(home) is not None:
        return False
    lock = HomeLock(home)
    is_free = lock.try_acquire()
    lock.release()
    return is_free


def _status(entry: ServerEntry, bodies: Mapping[str, bytes]) -> UpstreamStatus | None:
    if not entry.startable or entry.spec is None:
        return None
    from toolcrib.upstream.offer import Offer
    from toolcrib.upstream.status import Report

    body = bodies.get(entry.digest)
    return Report().status(entry.spec, Offer.from_json(body) if body is not None else None)


def _stored_offers(database: Path, found: Discovery) -> dict[str, bytes]:
    """Return the stored offers of the startable servers, by digest; none if the database cannot be read."""
    digests = sorted({entry.digest for entry in found.startable()})
    if not digests or not database.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _read_offers(connection, digests)
    except sqlite3.Error:
        return {}


def _read_offers(connection: sqlite3.Connection, digests: Collection[str]) -> dict[str, bytes]:
    listed = list(digests)
    bodies: dict[str, bytes] = {}
    for start in range(0, len(listed), _QUERY_SIZE):
        some = listed[start : start + _QUERY_SIZE]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(f"SELECT key, body FROM offers WHERE key IN ({marks})", some)
        bodies |= {str(key): bytes(body) for key, body in rows}
    return bodies
