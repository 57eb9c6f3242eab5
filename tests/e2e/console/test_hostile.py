"""Hostile strings in a real browser: no script runs, and the content security policy has nothing to refuse."""

import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, Page, StorageState, expect

from hostile_strings import WORST
from integration.web.console.console_client import ConsoleClient
from integration.web.console.hostile_crib import hostile_crib
from toolcrib.agents.sessions.sessions import NewSession

BOUND = 30.0
SCREENS = (
    "/", "/tools", "/agents", "/agents/stranger", "/agents/stranger/history", "/sessions", "/waiting", "/access/rules",
    "/activity", "/schedules", "/connect", "/settings", "/find?words=x",
)  # fmt: skip
WATCH = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.violatedDirective));
window.alert = window.confirm = window.prompt = () => { window.ran = 1; };
"""


@dataclass(frozen=True)
class HostileCrib:
    """A crib with hostile strings in this process, and the portal to its thread."""

    visitor: ConsoleClient
    portal: BlockingPortal

    @property
    def url(self) -> str:
        """The URL of the crib."""
        return str(self.visitor.client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def crib(tmp_path_factory: pytest.TempPathFactory) -> Generator[HostileCrib]:
    """Run a crib with the worst strings in every field."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(hostile_crib(tmp_path_factory.mktemp("user"), WORST)) as visitor,
    ):
        yield HostileCrib(visitor, portal)


@pytest.fixture(scope="module")
def signed_in(browser: Browser, crib: HostileCrib) -> StorageState:
    """Return browser storage with the visitor's cookies."""
    context = browser.new_context()
    for cookie in crib.visitor.client.cookies.jar:
        host = str(urlsplit(crib.url).hostname)
        context.add_cookies([{"name": cookie.name, "value": cookie.value or "", "domain": host, "path": "/"}])
    kept = context.storage_state()
    context.close()
    return kept


def check_unharmed(page: Page) -> None:
    """Check that no script ran and that no violation was reported."""
    page.wait_for_function("window.htmx !== undefined")
    assert page.evaluate("[window.ran ?? null, window.refused]") == [None, []]


@pytest.mark.parametrize("path", SCREENS)
def test_no_script_runs_on_any_screen(page: Page, path: str) -> None:
    page.add_init_script(WATCH)
    page.goto(path)
    check_unharmed(page)


def test_no_script_runs_in_a_streamed_conversation(page: Page, crib: HostileCrib, tmp_path: Path) -> None:
    page.add_init_script(WATCH)
    id = crib.portal.call(create_session, crib.visitor, tmp_path)
    page.goto(f"/sessions/{id}")
    page.get_by_label("Message").fill("\n\n".join((*WORST, "[[script:all]]")))
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Arguments (JSON)")).to_have_value(re.compile(re.escape(WORST[0])))
    check_unharmed(page)
    for part in page.locator("details[data-part] summary").all():
        part.click()
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator(".ask legend")).to_have_count(len(WORST))
    for folded in page.locator("main details").all():
        folded.evaluate("element => { element.open = true; }")
    check_unharmed(page)
    page.goto("/waiting")
    check_unharmed(page)
    page.get_by_label("Other answer").first.focus()
    check_unharmed(page)


async def create_session(visitor: ConsoleClient, cwd: Path) -> str:
    """Create a session without messages."""
    with anyio.fail_after(BOUND):
        session = await visitor.crib.sessions.create(NewSession("web", str(cwd), mode="default", runner="played"))
    return session.id
