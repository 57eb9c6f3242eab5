"""Connections to the servers of `tests/upstreams`, through a pool with short timeouts."""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from integration.upstream.stdio.harness import HELLO, TESTS
from toolcrib.base.network.web import open_web
from toolcrib.base.processes.process import Processes
from toolcrib.model.principals import Principal
from toolcrib.model.servers import DefinitionSource, Discovery, ServerEntry, ServerSpec, Share, UpstreamState
from toolcrib.model.sources import CallContext, Client, Notice
from toolcrib.model.tools import CallResult
from toolcrib.servers.secret_commands import SecretCommands
from toolcrib.servers.trust import definition_digest
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.opener import OpenerDeps
from toolcrib.upstream.plan import ProjectPath
from toolcrib.upstream.pool import OfferStore, Pool
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.source import UpstreamSource

SDK_SERVER = Path(__file__).parents[1] / "stdio" / "sdk_server.py"
QUICK = Timing(
    connect=20, list=20, idle=10, total=20, rest=0.05, longest_rest=0.2, window=60, refresh=0.05, ping_wait=0.3
)
OWNER = Principal("owner", "owner", "api")


def upstream_spec(module: str, *words: str, name: str = "", share: Share = "shared") -> ServerSpec:
    """Return the definition of a test server, as in the crib's own file."""
    return ServerSpec(
        name=name or module,
        alias=name or module,
        type="stdio",
        source=DefinitionSource("toolcrib", "user", "mcp.json"),
        command=sys.executable,
        args=("-S", "-m", f"upstreams.{module}", *words),
        env={"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
        share=share,
    )


def sdk_spec(name: str = "sdk", share: Share = "shared") -> ServerSpec:
    """Return the definition of the SDK's own server, which supports both eras."""
    spec = upstream_spec("", name=name, share=share)
    return replace(spec, args=(str(SDK_SERVER),), env={})


def entry(spec: ServerSpec) -> ServerEntry:
    """Return an enabled and trusted server with this definition."""
    digest = definition_digest(spec)
    return ServerEntry(spec.name, spec.alias, spec.source, {}, spec, enabled=spec.enabled, trusted=True, digest=digest)


def discovery_of(*specs: ServerSpec) -> Discovery:
    """Return a discovery of these servers."""
    return Discovery(tuple(entry(spec) for spec in specs))


@dataclass
class StoredOffers:
    """Keeps offers in a dictionary and counts the writes."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    saves: int = 0

    async def load(self) -> Mapping[str, bytes]:
        """Return all stored offers."""
        return self.kept

    async def save(self, bodies: Mapping[str, bytes]) -> None:
        """Store more offers."""
        self.kept.update(bodies)
        self.saves += len(bodies)


@dataclass
class PoolHarness:
    """A pool, with the changes, states and notices that it reported."""

    offers: StoredOffers
    changes: list[ProjectPath] = field(default_factory=list[ProjectPath])
    states: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notices: list[Notice] = field(default_factory=list[Notice])
    pool: Pool = field(init=False)
    _reported: anyio.Event = field(default_factory=anyio.Event)

    def notify(self) -> None:
        """Wake the waiters in `until`."""
        self._reported.set()
        self._reported = anyio.Event()

    async def until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until a condition holds; check it at every report of the pool."""
        with anyio.fail_after(seconds):
            while not holds():
                await self._reported.wait()

    async def until_state(self, name: str, state: UpstreamState, project: ProjectPath = None) -> UpstreamSource:
        """Wait for a server's state."""
        await self.until(lambda: self.source(name, project).status.state == state)
        return self.source(name, project)

    def source(self, name: str, project: ProjectPath = None) -> UpstreamSource:
        """Return a server of a project."""
        source = self.pool.find(name, project)
        assert source is not None
        return source

    async def connect(self, *specs: ServerSpec, project: ProjectPath = None) -> UpstreamSource:
        """Connect servers and return the first one."""
        self.pool.reconcile(project, discovery_of(*specs))
        for spec in specs:
            await self.until_state(spec.alias, "connected", project)
        return self.source(specs[0].alias, project)


async def call(source: UpstreamSource, tool: str, client: Client | None = None, **arguments: object) -> CallResult:
    """Call a tool as the gate does."""
    with anyio.fail_after(15):
        return await source.prepare(tool, arguments, b"")(CallContext(OWNER, "call", client=client))


def text_of(result: CallResult) -> str:
    """Return the text of a result with a single block."""
    (block,) = result.content
    return block["text"]


@asynccontextmanager
async def open_harness(
    processes: Processes,
    folder: Path,
    *,
    offers: StoredOffers | None = None,
    timing: Timing = QUICK,
    eager: bool = True,
    environment: Mapping[str, str] | None = None,
    own_url: str | None = None,
    sandboxes: Path | None = None,
) -> AsyncGenerator[PoolHarness]:
    """Run a pool on these processes."""
    variables = environment or {}
    deps = OpenerDeps(
        processes,
        await open_web({}),
        CredentialStore(folder),
        variables,
        SecretCommands(variables),
        HELLO,
        timing=timing,
        sandboxes=sandboxes,
    )
    harness = PoolHarness(offers or StoredOffers())

    def on_sources(project: ProjectPath) -> None:
        harness.changes.append(project)
        harness.notify()

    def on_status(server: ServerEntry) -> None:
        harness.states.append((server.alias, harness.pool.status(server).state))
        harness.notify()

    def on_notice(notice: Notice) -> None:
        harness.notices.append(notice)
        harness.notify()

    store = OfferStore(harness.offers.load, harness.offers.save)
    harness.pool = Pool(deps, store, own_url=lambda: own_url, eager=eager)
    harness.pool.watch(on_sources=on_sources, on_status=on_status)
    async with harness.pool:
        harness.pool.listen(on_notice)
        yield harness
