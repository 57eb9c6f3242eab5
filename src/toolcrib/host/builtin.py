"""The built-in servers, built last: every service they are given is ready."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from toolcrib.agents.github.github import GitHub
from toolcrib.agents.library import Library
from toolcrib.agents.sessions.runtimes import has_runtime
from toolcrib.agents.symbols.languages import missing_parts
from toolcrib.base.files.write import WriteContext
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.web import Web
from toolcrib.base.settings import GITHUB_URL, Settings
from toolcrib.builtin.crew.code import CodeDirectory
from toolcrib.builtin.crew.github import Posting
from toolcrib.builtin.crew.messages import Messenger
from toolcrib.builtin.crew.owner import Person
from toolcrib.builtin.crew.projects import ProjectDirectory
from toolcrib.builtin.crew.server import crew_server
from toolcrib.builtin.crew.work import WorkService
from toolcrib.builtin.scheduling import Scheduling
from toolcrib.builtin.toolcrib.configuration import Configuration
from toolcrib.builtin.toolcrib.server import CribFacts, toolcrib_server
from toolcrib.builtin.toolcrib.servers import ServerDirectory
from toolcrib.builtin.toolcrib.sessions import SessionDirectory
from toolcrib.host.agents import Agents
from toolcrib.host.context import CribContext
from toolcrib.host.gate import GateParts
from toolcrib.host.upstreams import Upstreams
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.tools import ToolServer

if TYPE_CHECKING:
    from toolcrib.agents.github import api as github_api
    from toolcrib.agents.symbols import index as symbol_index
else:
    symbol_index = lazy_module("toolcrib.agents.symbols.index")
    github_api = lazy_module("toolcrib.agents.github.api")


def builtin_servers(
    context: CribContext,
    gate: GateParts,
    upstreams: Upstreams,
    agents: Agents,
    *,
    started_at: datetime,
    stack: AsyncExitStack,
) -> Iterator[ToolServer]:
    """Yield the built-in servers `toolcrib` and `crew`. `stack` closes what they open."""
    permissions, is_person, cwd = gate.permissions, gate.principals.is_person, context.default_cwd
    scheduling = Scheduling(agents.schedules, permissions.has_agent, is_person, cwd)
    writing = WriteContext(context.user_home, context.home.backups, context.home.root)
    yield toolcrib_server(
        facts=lambda: CribFacts(context.address.port, started_at, cwd()),
        sessions=SessionDirectory(agents.sessions, agents.count_sessions, cwd()),
        servers=ServerDirectory(upstreams.operations, gate.gate),
        scheduling=scheduling,
        configuration=Configuration(
            context.settings, context.home.settings_file, writing, gate.changes, gate.file_changes.expect
        ),
    )
    yield crew_server(
        {
            **_constants(
                gate.zoo,
                agents.sessions,
                agents.credits,
                scheduling,
                Messenger(
                    agents.sessions, gate.zoo, counts=SharedCounts(context.store) if context.store.shared else None
                ),
                Library(context.store),
                Person(agents.notifier, agents.sessions, is_person),
                ProjectDirectory(permissions.projects, cwd),
                CodeDirectory(
                    cache(lambda: symbol_index.Symbols(context.environment)),
                    permissions.projects,
                    cwd,
                    partial(gate.guard.is_closed, is_tree=True),
                ),
                WorkService(agents.work, gate.zoo, is_person, cwd, gate.guard.is_closed),
            ),
            Posting: _constant(_open_github(context.settings, upstreams.web, stack)),
        }
    )


def available_services(settings: Settings) -> Iterator[str]:
    """Yield the available services that crew tools may require."""
    if settings.github_token is not None:
        yield "github"
    if not missing_parts():
        yield "symbols"
    if has_runtime():
        yield "runtime"


def _constants(*services: object) -> Mapping[Any, Callable[[], Any]]:
    """Return a provider for each service, by its type."""
    return {type(service): _constant(service) for service in services}


def _constant(service: object) -> Callable[[], Any]:
    return lambda: service


def _open_github(settings: Settings, web: Web, stack: AsyncExitStack) -> Posting | None:
    """Return the GitHub client, or None without a token. Only a configured address may be in the local network."""
    if settings.github_token is None:
        return None
    http = web.client(local_allowed=settings.github_url != GITHUB_URL)
    stack.push_async_callback(http.aclose)
    api = github_api.Api(http, settings.github_url, settings.github_token)
    return Posting(GitHub(api, label=settings.github_label or None, owners=settings.github_organisations))
