"""Fixtures for tests of the console in a real browser.

Each module has one crib and one browser. It may define its own fixture `person`, to put files into the user's home
before the crib starts. Console errors, violations of the content security policy, failed scripts and requests to other
hosts fail the test.

"""

import json
import os
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, StorageState, expect, sync_playwright

from e2e.shell import LIMIT, Serving, Shell
from programs import chromium, installed
from toolcrib.model.json import JsonObject

Scheme = Literal["light", "dark"]
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
WIDE, NARROW = (1280, 800), (360, 740)
TIMEOUT_MS = 20_000
"""Timeout of all actions on a page, in milliseconds."""
expect.set_options(timeout=TIMEOUT_MS)
RULES: JsonObject = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
COLOURS: JsonObject = {"type": "rule", "values": ["color-contrast"]}
"""The rules whose result depends on the colour scheme."""


@dataclass
class Complaints:
    """Errors reported by pages. A test that causes an error declares it with `expect`."""

    found: list[str] = field(default_factory=list[str])
    expected: list[str] = field(default_factory=lambda: ["net::ERR_NETWORK_ACCESS_REVOKED", "/healthz)"])
    """At first, the errors that the probe of apps causes."""

    def expect(self, part: str) -> None:
        """Ignore errors that contain this text."""
        self.expected.append(part)

    def unexpected(self) -> list[str]:
        """Return the unexpected errors."""
        return [each for each in self.found if not any(part in each for part in self.expected)]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell with its own home and a few Python tools, server `lab`."""
    return Shell.at(tmp_path_factory.mktemp("person"))


@pytest.fixture(scope="module")
def crib(person: Shell) -> Generator[Serving]:
    """Run the person's crib."""
    process = person.start("serve", "--json", "--no-open")
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.start()
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        watchdog.cancel()
        assert line, process.stderr.read()
        yield Serving(process, json.loads(line))
    finally:
        watchdog.cancel()
        process.terminate()
        process.communicate(timeout=LIMIT)


@pytest.fixture(scope="module")
def browser(pytestconfig: pytest.Config) -> Generator[Browser]:
    """Start Chromium for the module. No other test can run an event loop while it is open."""
    program = chromium(pytestconfig)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, crib: Serving) -> StorageState:
    """Sign in with the one-time link and return the browser's storage."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(str(crib.ready["console"]))
    kept = context.storage_state()
    context.close()
    return kept


@pytest.fixture
def complaints() -> Generator[Complaints]:
    """Collect the errors of a test's pages. Unexpected errors fail the test."""
    collected = Complaints()
    yield collected
    assert collected.unexpected() == []


@pytest.fixture
def context(
    browser: Browser, crib: Serving, signed_in: StorageState, complaints: Complaints
) -> Generator[BrowserContext]:
    """Open a signed-in browser context."""
    opened = browser.new_context(
        base_url=crib.url,
        storage_state=signed_in,
        viewport={"width": WIDE[0], "height": WIDE[1]},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    opened.set_default_timeout(TIMEOUT_MS)
    opened.on("page", lambda page: _listen(page, crib, complaints))
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Open a tab. `context.new_page()` opens more."""
    return context.new_page()


@pytest.fixture(scope="session")
def axe_source(pytestconfig: pytest.Config) -> str:
    """Return the source of axe, which finds accessibility violations."""
    modules = installed("node", pytestconfig) / "node_modules"
    return (modules / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def axe(axe_source: str) -> Callable[[Page], list[str]]:
    """Return a function that lists a page's accessibility violations, in light and in dark."""

    def run(page: Page) -> list[str]:
        page.evaluate(axe_source)
        found: list[str] = []
        looks: tuple[tuple[Scheme, JsonObject], ...] = (("light", RULES), ("dark", COLOURS))
        for scheme, rules in looks:
            page.emulate_media(color_scheme=scheme)
            outcome: Any = page.evaluate("rules => axe.run({runOnly: rules})", rules)
            found += [
                f"{scheme} {broken['id']}: {node['html'][:200]} {node['failureSummary']}"
                for broken in outcome["violations"]
                for node in broken["nodes"]
            ]
        page.emulate_media(color_scheme="light")
        return found

    return run


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    """Return a function that saves screenshots, light and dark, wide and narrow, in the folder `TOOLCRIB_PICTURES`."""
    folder = os.environ.get("TOOLCRIB_PICTURES")

    def take(page: Page, name: str) -> None:
        if folder is None:
            return
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for width, height in (WIDE, NARROW):
                page.set_viewport_size({"width": width, "height": height})
                page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})

    return take


def _listen(page: Page, crib: Serving, complaints: Complaints) -> None:
    def check_host(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != crib.url:
            complaints.found.append(f"request to another host: {url}")

    def collect(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.found.append(f"{message.text} ({message.location['url']})")

    page.on("console", collect)
    page.on("pageerror", lambda error: complaints.found.append(f"script failed: {error}"))
    page.on("request", lambda request: check_host(request.url))
