"""What every part of a crib needs: its home, store, audit, feed and background tasks, and the address it listens on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anyio.abc import TaskGroup

from toolcrib.base.feed import Feed
from toolcrib.base.home import Home
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.masking.words import is_secret_name
from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.base.processes.start import PROXY_NAMES
from toolcrib.base.settings import SETTINGS, Environment, Settings
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.gate.audit.audit import Audit
from toolcrib.nodes.cluster_secret import ClusterSecret
from toolcrib.nodes.forwarding import NodeClient
from toolcrib.nodes.membership import Membership
from toolcrib.nodes.signals import Signals
from toolcrib.store.engine import Store

_SHORTEST_SECRET = 8


class CribAddress:
    """The addresses of a crib. `port` is 0 while it does not listen.

    With `is_lasting`, the crib keeps running, so apps may use the port it listens on.
    """

    def __init__(self, settings: Settings, *, is_lasting: bool) -> None:
        self.port = 0
        self._settings = settings
        self._is_lasting = is_lasting

    def for_runtimes(self) -> str | None:
        """Return the MCP endpoint for the crib's own sessions, or None while it does not listen."""
        return f"{self._url(self.port)}/mcp" if self.port else None

    def for_apps(self) -> str | None:
        """Return the address for apps: the current one if this crib keeps running, else the configured one."""
        return self._url(self.port if self._is_lasting and self.port else self._settings.port)

    def on_loopback(self) -> str | None:
        """Return the address on this machine, or None while the crib does not listen."""
        return f"http://127.0.0.1:{self.port}" if self.port else None

    def _url(self, port: int) -> str | None:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"http://{host}:{port}" if port else None


@dataclass(frozen=True, slots=True)
class CribContext:
    """Shared by all parts of a crib. `id` identifies the crib among those that share a database."""

    id: str
    settings: Settings
    environment: Environment
    home: Home
    address: CribAddress
    stop_switch: StopSwitch
    secrets: KnownSecrets
    named_secrets: NamedSecrets
    store: Store
    membership: Membership
    cluster_secret: ClusterSecret | None
    signals: Signals
    node_client: NodeClient | None
    audit: Audit
    feed: Feed
    tasks: TaskGroup

    @property
    def user_home(self) -> Path:
        """The home directory of the user."""
        home = self.environment.get("HOME")
        return Path(home) if home else Path.home()

    def cluster_key(self, purpose: str) -> bytes | None:
        """Return the key that all nodes of the cluster have for one purpose; None without a node secret."""
        return None if self.cluster_secret is None else self.cluster_secret.key(purpose)

    def default_cwd(self) -> str:
        """Return the directory of sessions and calls that name none."""
        return str(self.settings.default_cwd or Path.cwd())


def own_secrets(settings: Settings, environment: Environment) -> Iterator[str]:
    """Yield the values of secret settings, of variables whose names indicate a secret, and the passwords of proxies."""
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if setting.secret and isinstance(value, str):
            yield from _parts(value)
    for name, value in environment.items():
        if name in PROXY_NAMES:
            yield from _parts(value if "://" in value else f"http://{value}")
        elif len(value) >= _SHORTEST_SECRET and is_secret_name(name):
            yield from _parts(value)


def _parts(value: str) -> Iterator[str]:
    """Yield the value itself, or the password of a URL."""
    if "://" not in value:
        yield value
        return
    try:
        password = urlsplit(value).password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
