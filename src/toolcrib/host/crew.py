"""The services behind the crew tools, composed from the opened parts of a crib.

Must never own a part that belongs to another one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from toolcrib.agents.credits import Credits
from toolcrib.agents.github.api import Api
from toolcrib.agents.github.github import GitHub
from toolcrib.agents.library import Library
from toolcrib.agents.sessions.manager import Sessions
from toolcrib.agents.sessions.runtimes import has_runtime
from toolcrib.agents.symbols.languages import missing_parts
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.network.web import Web
from toolcrib.base.settings import GITHUB_URL, Settings
from toolcrib.builtin.crew.code import CodeDirectory
from toolcrib.builtin.crew.github import Posting
from toolcrib.builtin.crew.messages import Messenger
from toolcrib.builtin.crew.owner import Person
from toolcrib.builtin.crew.projects import ProjectDirectory
from toolcrib.builtin.crew.work import WorkService
from toolcrib.builtin.scheduling import Scheduling


@dataclass(frozen=True, slots=True)
class Crew:
    """The services of the crew tools. `github` is None without a token; its tools are not offered then."""

    zoo: Zoo
    sessions: Sessions
    messenger: Messenger
    library: Library
    credits: Credits
    person: Person
    projects: ProjectDirectory
    scheduling: Scheduling
    code: CodeDirectory
    github: Posting | None
    work: WorkService


def crew_providers(crew: Callable[[], Crew]) -> Mapping[Any, Callable[[], Any]]:
    """Return a provider for each service, to be called once the crib is open."""
    return {
        Zoo: lambda: crew().zoo,
        Sessions: lambda: crew().sessions,
        Messenger: lambda: crew().messenger,
        Library: lambda: crew().library,
        Credits: lambda: crew().credits,
        Person: lambda: crew().person,
        ProjectDirectory: lambda: crew().projects,
        Scheduling: lambda: crew().scheduling,
        CodeDirectory: lambda: crew().code,
        Posting: lambda: crew().github,
        WorkService: lambda: crew().work,
    }


def crew_services(settings: Settings) -> Iterator[str]:
    """Yield the available services that crew tools may require."""
    if settings.github_token is not None:
        yield "github"
    if not missing_parts():
        yield "symbols"
    if has_runtime():
        yield "runtime"


def open_github(settings: Settings, web: Web, stack: AsyncExitStack) -> Posting | None:
    """Return the GitHub client, or None without a token. Only a configured address may be in the local network."""
    if settings.github_token is None:
        return None
    http = web.client(local_allowed=settings.github_url != GITHUB_URL)
    stack.push_async_callback(http.aclose)
    api = Api(http, settings.github_url, settings.github_token)
    return Posting(GitHub(api, label=settings.github_label or None, owners=settings.github_organisations))
