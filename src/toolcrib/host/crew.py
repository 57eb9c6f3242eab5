"""What the crew tools stand on, made of what the crib has opened.

Above: `agents` opens it. Below: `builtin`, and the services of each domain. It must never hold what another part owns.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from toolcrib.builtin.crew.code import CodeDirectory
from toolcrib.builtin.crew.github import Posting
from toolcrib.builtin.crew.messages import Messenger
from toolcrib.builtin.crew.owner import Person
from toolcrib.builtin.crew.projects import ProjectDirectory
from toolcrib.builtin.crew.work import WorkDesk
from toolcrib.builtin.scheduling import Scheduling
from toolcrib.connect.web import Web
from toolcrib.credits import Credits
from toolcrib.github import Api, GitHub
from toolcrib.library import Library
from toolcrib.sessions import Sessions
from toolcrib.sessions.runners import has_runtime
from toolcrib.settings import GITHUB_URL, Settings
from toolcrib.symbols import missing_parts
from toolcrib.zoo import Zoo


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
    work: WorkDesk


def crew_providers(crew: Callable[[], Crew]) -> Mapping[Any, Callable[[], Any]]:
    """How each service is had once the crib is open."""
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
        WorkDesk: lambda: crew().work,
    }


def crew_services(settings: Settings) -> Iterator[str]:
    """What crew tools may require and is there."""
    if settings.github_token is not None:
        yield "github"
    if not missing_parts():
        yield "symbols"
    if has_runtime():
        yield "runtime"


def open_github(settings: Settings, web: Web, stack: AsyncExitStack) -> Posting | None:
    """GitHub, where there is a token. An address in this network has to be one that the owner wrote."""
    if settings.github_token is None:
        return None
    http = web.client(local_allowed=settings.github_url != GITHUB_URL)
    stack.push_async_callback(http.aclose)
    api = Api(http, settings.github_url, settings.github_token)
    return Posting(GitHub(api, label=settings.github_label or None, owners=settings.github_organisations))
