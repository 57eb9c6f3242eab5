"""Hostile text stays text in every field that others can fill, on every screen."""

from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import pytest

from hostile_strings import WORST, strings
from integration.web.console.console_client import ConsoleClient, Element, open_console, read
from integration.web.console.hostile_crib import HostileSource, hostile_crib
from toolcrib.agents.sessions.sessions import NewSession

pytestmark = pytest.mark.anyio

STRINGS = strings()
BOUND = 30.0
SCREENS = (
    "/", "/servers/new", "/tools", "/agents", "/agents/stranger", "/agents/stranger/history", "/agents/stranger/tools",
    "/sessions", "/waiting", "/access", "/access/reach", "/access/rules", "/access/simulate", "/activity", "/schedules",
    "/connect", "/settings", "/find?words=x", "/schedules/-/new",
)  # fmt: skip


@pytest.fixture(scope="module")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ConsoleClient]:
    """A crib with hostile strings in every field."""
    async with hostile_crib(tmp_path_factory.mktemp("user"), STRINGS) as console:
        yield console


def check_harmless(page: Element) -> None:
    """Check that no hostile text became an element or a link."""
    for element in page:
        assert element.tag not in ("math", "animate", "link") or element.attributes["href"].startswith("/static/")
        assert "javascript:" not in element.attributes.get("href", "").lower()
        assert element.attributes.get("hx-get") != "/x"
        assert element.tag != "img" or element.attributes["src"].startswith(("/static/", "data:image/"))
        assert not element.attributes.get("action", "").startswith("http")


@pytest.mark.parametrize("path", SCREENS)
async def test_every_screen_shows_hostile_text_as_text(hostile: ConsoleClient, path: str) -> None:
    check_harmless(await hostile.page(path))


async def test_hostile_names_have_working_pages(hostile: ConsoleClient) -> None:
    shown = 0
    for each in WORST:
        answer = await hostile.client.get(f"/tools/stranger/{quote(each, safe='')}", headers={"accept": "text/html"})
        assert answer.status_code in (200, 404), each
        check_harmless(read(answer.text))
        shown += answer.status_code == 200
    assert shown >= len(WORST) // 2
    for schedule in await hostile.crib.schedules.list():
        check_harmless(await hostile.page(f"/schedules/{schedule.id}"))
    for agent in await hostile.crib.zoo.list():
        check_harmless(await hostile.page(f"/agents/{agent.id}"))


async def test_hostile_conversation_is_shown_as_text(hostile: ConsoleClient, tmp_path: Path) -> None:
    crib = hostile.crib
    session = await crib.sessions.create(NewSession("web", str(tmp_path), mode="default", runner="played"))
    log = await crib.sessions.events(session.id)
    await crib.sessions.send(session.id, f"{HostileSource(STRINGS).all} [[script:all]]")
    with anyio.fail_after(BOUND):
        async for batch in log.follow(0):
            for event in batch:
                if event.kind == "approval_required":
                    page = await hostile.page(f"/sessions/{session.id}")
                    check_harmless(page)
                    assert WORST[0] in page.one("textarea", name="arguments").raw_text
                    check_harmless(await hostile.page("/waiting"))
                    parts = [each.attributes["data-part"] for each in page if "data-part" in each.attributes]
                    answer: dict[str, str | list[str]] = {"decision": "approve", "opened": parts}
                    await hostile.send(f"/waiting/approvals/{event.data['approvalId']}", answer)
            if any(event.kind == "question_prompt" for event in batch):
                break
    for path in (f"/sessions/{session.id}", "/waiting", "/activity", "/sessions"):
        check_harmless(await hostile.page(path))
    message = (await hostile.page(f"/sessions/{session.id}")).one("article", class_="user")
    assert WORST[0] in message.raw_text
    await crib.sessions.interrupt(session.id)


RTL, EMOJI, LONG = "\u05e9\u05dc\u05d5\u05dd \u202e\u2066", "\U0001f9f0 \u00fc&cwd=#%2F?\"'>", "long" * 60
CHOSEN = (RTL, EMOJI, LONG, WORST[5].replace("/", ""))
OF_PROJECTS = ("/servers", "/access/projects", "/access/bundles", "/access/tokens")


async def test_chosen_project_is_kept_in_every_link(tmp_path: Path) -> None:
    projects = {name: tmp_path / "projects" / name for name in (*CHOSEN, *WORST) if "/" not in name}
    async with open_console(tmp_path / "crib") as console:
        for project in projects.values():
            await anyio.Path(project).mkdir(parents=True, exist_ok=True)
            await console.send("/access/projects", {"path": str(project), "agent": "reviewer"})
        paths = [path for path in (*SCREENS, *OF_PROJECTS) if "?" not in path and "stranger" not in path]
        for path in paths:
            check_harmless(await console.page(path))
        for number, path in enumerate(paths * 2):
            project = str(projects[CHOSEN[number % len(CHOSEN)]])
            page = await console.page(path, cwd=project)
            check_harmless(page)
            assert page.one("input", id="project").attributes["value"] == project
            check_links_keep(page, project)
            check_harmless(await console.page("/access/tools", project=project, cwd=project))
        chosen = str(projects[EMOJI])
        to = "/access/projects/remove"
        moved = await console.client.post(to, params={"cwd": chosen}, data={"path": chosen})
        assert parse_qs(urlsplit(str(moved.url)).query)["cwd"] == [chosen]


def check_links_keep(page: Element, project: str) -> None:
    """Check that every link and form keeps the project, except those that choose another one."""
    for element in page:
        for attribute in ("href", "action", "formaction", "hx-get", "hx-post"):
            to = urlsplit(element.attributes.get(attribute) or "")
            chooses = element.attributes.get("aria-label", "").startswith(("Choose ", "Add server to "))
            if to.path and not to.netloc and not to.path.startswith(("/static/", "/api/")) and not chooses:
                assert parse_qs(to.query).get("cwd") == [project], to
    for form in page.all("form", method="get"):
        assert [each.attributes["value"] for each in form.all("input", name="cwd")] == [project]
