"""Every page of the console in a browser: no accessibility violation or overflow, light and dark, wide and narrow."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, Page, StorageState

from e2e.console.conftest import Complaints
from integration.web.console.console_client import ConsoleClient, open_console
from integration.web.console.every_page import DOWNLOADS, PARTS, every_page, write_servers
from long_tests import takes_long

Axe = Callable[[Page], list[str]]
PHONE = (390, 800)


@dataclass(frozen=True)
class FilledCrib:
    """A crib in this process that has one item of every kind."""

    visitor: ConsoleClient
    portal: BlockingPortal
    pages: list[str]

    @property
    def url(self) -> str:
        """The URL of the crib."""
        return str(self.visitor.client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def crib(tmp_path_factory: pytest.TempPathFactory) -> Generator[FilledCrib]:
    user = tmp_path_factory.mktemp("user")
    write_servers(user / "home", 40)
    (user / "project").mkdir()
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(open_console(user / "home", user)) as visitor,
    ):
        addresses = portal.call(every_page, visitor, user / "project")
        pages = [address for path, address in addresses.items() if path not in PARTS | DOWNLOADS]
        yield FilledCrib(visitor, portal, pages)


@pytest.fixture(scope="module")
def signed_in(browser: Browser, crib: FilledCrib) -> StorageState:
    context = browser.new_context()
    for cookie in crib.visitor.client.cookies.jar:
        host = str(urlsplit(crib.url).hostname)
        context.add_cookies([{"name": cookie.name, "value": cookie.value or "", "domain": host, "path": "/"}])
    kept = context.storage_state()
    context.close()
    return kept


def violations(page: Page, axe: Axe) -> list[str]:
    """Return the accessibility violations of a page on a wide screen and on a phone, and its overflow on a phone."""
    page.wait_for_load_state("load")
    found = axe(page)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    wider: Any = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    found += axe(page) + ([f"{wider} pixels wider than a phone"] if wider > 0 else [])
    page.set_viewport_size({"width": 1280, "height": 800})
    return found


@takes_long
def test_no_page_has_a_barrier_or_overflow_in_any_scheme_or_width(page: Page, crib: FilledCrib, axe: Axe) -> None:
    found: dict[str, list[str]] = {}
    for address in crib.pages:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        if barriers := violations(page, axe):
            found[address] = barriers
    assert found == {}


@takes_long
def test_error_and_signed_out_pages_have_no_barrier(
    page: Page, browser: Browser, crib: FilledCrib, axe: Axe, complaints: Complaints, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints.expect("status of")

    async def fail(*_: object) -> None:
        raise RuntimeError("A part of the crib is broken.")

    monkeypatch.setattr(crib.visitor.crib.zoo, "list", fail)
    for address, status in (("/nowhere", 404), ("/tools/no/such", 404), ("/agents", 500), ("/?range=age", 422)):
        answer = page.goto(address)
        assert answer is not None
        assert (address, answer.status) == (address, status)
        assert page.get_by_role("heading", level=1).count() == 1
        assert (address, violations(page, axe)) == (address, [])
    stranger: BrowserContext = browser.new_context(base_url=crib.url)
    signed_out = stranger.new_page()
    signed_out.goto("/activity")
    assert signed_out.get_by_text("toolcrib open").count() == 1
    assert violations(signed_out, axe) == []
    stranger.close()
