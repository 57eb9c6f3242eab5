"""Fixtures for tests of the console in a real browser: a crib of its own, a person's browser, and what must not happen.

A module has one crib and one browser. It may have a fixture `person` of its own, to put files into the person's home
before the crib starts. Whatever a page complains about (console errors, refusals of the content policy, failed
scripts) and every request to another host fails the test.
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
SLOWEST = 20_000
"""Milliseconds that anything on a page may take."""
expect.set_options(timeout=SLOWEST)
RULES: JsonObject = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
COLOURS: JsonObject = {"type": "rule", "values": ["color-contrast"]}
"""What of all that the scheme of colours can change."""


@dataclass
class Complaints:
    """What pages complained about. A test that provokes a refusal says so with `expect`."""

    found: list[str] = field(default_factory=list[str])
    expected: list[str] = field(default_factory=lambda: ["net::ERR_NETWORK_ACCESS_REVOKED", "/healthz)"])
    """At first only what the probe of apps provokes."""

    def expect(self, part: str) -> None:
        """Complaints with these words in them are right."""
        self.expected.append(part)

    def left(self) -> list[str]:
        """Those that nobody expected."""
        return [each for each in self.found if not any(part in each for part in self.expected)]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A person with a home of their own and a few Python tools, server `lab`."""
    return Shell.at(tmp_path_factory.mktemp("person"))


@pytest.fixture(scope="module")
def crib(person: Shell) -> Generator[Serving]:
    """A running crib of that person."""
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
    """The Chromium of this machine. It ends with the module: while it is there, no other test can run a loop."""
    program = chromium(pytestconfig)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, crib: Serving) -> StorageState:
    """What a browser keeps that came in by the one-time link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(str(crib.ready["console"]))
    kept = context.storage_state()
    context.close()
    return kept


@pytest.fixture
def complaints() -> Generator[Complaints]:
    """What the pages of a test complained about; at its end there must be none that it did not expect."""
    heard = Complaints()
    yield heard
    assert heard.left() == []


@pytest.fixture
def context(
    browser: Browser, crib: Serving, signed_in: StorageState, complaints: Complaints
) -> Generator[BrowserContext]:
    """A person's browser, signed in."""
    opened = browser.new_context(
        base_url=crib.url,
        storage_state=signed_in,
        viewport={"width": WIDE[0], "height": WIDE[1]},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    opened.set_default_timeout(SLOWEST)
    opened.on("page", lambda page: _listen(page, crib, complaints))
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A tab; more are had from `context.new_page()`."""
    return context.new_page()


@pytest.fixture(scope="session")
def axe_source(pytestconfig: pytest.Config) -> str:
    """The program that finds barriers in pages."""
    modules = installed("node", pytestconfig) / "node_modules"
    return (modules / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def axe(axe_source: str) -> Callable[[Page], list[str]]:
    """Finds the barriers of a page as it is now, in light and in dark; each is told with where it stands."""

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
    """Keeps pictures of a page, light and dark, wide and narrow, where `TOOLCRIB_PICTURES` names a folder for them."""
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
    def judge(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != crib.url:
            complaints.found.append(f"asked elsewhere: {url}")

    def hear(said: ConsoleMessage) -> None:
        if said.type == "error":
            complaints.found.append(f"{said.text} ({said.location['url']})")

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.found.append(f"script failed: {error}"))
    page.on("request", lambda asked: judge(asked.url))
