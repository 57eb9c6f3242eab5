"""Limits of the console: bytes and requests of the first screen, and long tasks in the browser."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import BrowserContext, Page, Request, expect

from long_tests import takes_long
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.json import Json
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.run import Holding, hold

KILOBYTE = 1024
LONG = 200
"""The longest task allowed, in milliseconds."""
MESSAGES = 400
WATCH = """
window.long = [];
new PerformanceObserver((list) => { for (const task of list.getEntries()) window.long.push(task.duration); })
  .observe({type: "longtask", buffered: true});
"""
ANSWER = "Some **words**, `code` and a list:\n\n- one\n- two\n\n```python\nprint('hello')\n```\n"
SCRIPTS: dict[str, Json] = {
    "many": [{"blocks": [{"text": ANSWER}]}],
    "slow": [{"blocks": [{"text": "word " * 200 + "end"}], "chunk": 5, "chunk_delay_ms": 10}],
}


@dataclass(frozen=True)
class HeldCrib:
    """A crib in this process, and the portal to its thread."""

    holding: Holding
    portal: BlockingPortal

    @property
    def url(self) -> str:
        """The URL of the crib."""
        return self.holding.info.url

    @property
    def ready(self) -> dict[str, str]:
        """The ready line, with the link that signs in."""
        return {"console": self.holding.login_url}


@pytest.fixture(scope="module")
def crib(tmp_path_factory: pytest.TempPathFactory) -> Generator[HeldCrib]:
    """Run a crib whose owner has a dozen servers and a scripted runtime."""
    user = tmp_path_factory.mktemp("user")
    (user / ".cursor").mkdir()
    servers = {f"server-{number}": {"command": "npx", "args": ["-y", f"package-{number}"]} for number in range(12)}
    (user / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    environment = Environment({"HOME": str(user), "PATH": "/usr/bin:/bin"})
    settings = Settings(home=user / "home")
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(hold(settings, kind="serve", port=0, environment=environment)) as holding,
    ):
        holding.crib.runners.add(PlayedRunner(SCRIPTS))
        yield HeldCrib(holding, portal)


@pytest.fixture
def long_tasks(context: BrowserContext) -> Callable[[Page], list[float]]:
    """Return a function that lists the page's tasks over the limit."""
    context.add_init_script(WATCH)

    def read(page: Page) -> list[float]:
        found: list[float] = page.evaluate("window.long")
        return [each for each in found if each > LONG]

    return read


def test_first_screen_stays_within_its_bytes_and_requests(context: BrowserContext, page: Page) -> None:
    requests: list[Request] = []
    page.on("requestfinished", lambda request: requests.append(request))
    page.goto("/", wait_until="load")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    page.wait_for_function("window.htmx !== undefined")
    worker = context.request.get(str(page.get_attribute("body", "data-worker")))
    assert worker.headers["content-encoding"] == "gzip"
    sizes = [max(0, each.sizes()["responseBodySize"]) for each in requests]  # negative for a cached answer
    assert sum(sizes) > 10 * KILOBYTE
    assert sum(sizes) + int(worker.headers["content-length"]) <= 60 * KILOBYTE
    assert len(sizes) + 2 <= 10  # the worker and its stream are not requests of the page


@takes_long
def test_chat_of_hundreds_of_messages_causes_no_long_task(
    page: Page, crib: HeldCrib, long_tasks: Callable[[Page], list[float]], tmp_path: Path
) -> None:
    id = crib.portal.call(create_chat, crib.holding.crib, tmp_path)
    page.goto(f"/sessions/{id}")
    expect(page.locator(".item.user, .item.text")).to_have_count(MESSAGES)
    page.get_by_label("Message").fill("More [[script:slow]]")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".item.done")).to_have_count(MESSAGES // 2 + 1)
    expect(page.locator(".item.text").last).to_contain_text("end")
    assert long_tasks(page) == []


async def create_chat(crib: Crib, cwd: Path) -> str:
    """Create a session with `MESSAGES` messages."""
    with anyio.fail_after(60):
        async with crib.sessions.open(NewSession("web", str(cwd), runner="played")) as session:
            for _ in range(MESSAGES // 2):
                async for _ in session.send("Say [[script:many]]"):
                    pass
            return session.id


@takes_long
def test_page_stays_responsive_during_fifty_changes_a_second(
    page: Page, crib: HeldCrib, long_tasks: Callable[[Page], list[float]]
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto("/")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    before = len(requests)
    publishing = crib.portal.start_task_soon(changes, crib.holding.crib)
    slowest: float = page.evaluate(FRAMES, 3_000)
    page.keyboard.press("Control+k")
    page.keyboard.type("access")
    expect(page.locator("#palette-found a").first).to_contain_text("Access")
    assert publishing.result(30) == 250
    assert slowest < LONG
    assert long_tasks(page) == []
    assert 3 < len(requests) - before <= 50  # the page was refreshed, but not for each change


FRAMES = """(milliseconds) => new Promise((done) => {
  const began = performance.now();
  let last = began, slowest = 0;
  const next = (now) => {
    slowest = Math.max(slowest, now - last);
    last = now;
    if (now - began < milliseconds) requestAnimationFrame(next); else done(slowest);
  };
  requestAnimationFrame(next);
})"""
"""Returns the longest time between two frames."""


async def changes(crib: Crib) -> int:
    """Publish fifty changes a second for five seconds."""
    data: dict[str, Any] = {"server": "server-1", "state": "starting"}
    for number in range(250):
        crib.feed.publish("server_changed", data | {"state": "starting" if number % 2 else "failed"})
        await anyio.sleep(0.02)
    return 250
