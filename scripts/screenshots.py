"""Takes pictures of every screen of the console, light and dark, into docs/screenshots. Run by `make screenshots`.

They show the demonstration: a team at work on the scripted model, with one call that waits for a person. Needs a
Chromium. Reads and changes nothing of the machine's own crib.

"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page, sync_playwright

from toolcrib.base.settings import Environment

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
LARGEST = 150_000
LIMIT = 120.0
SIZE = (1280, 720)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SCREENS = {
    "overview": "/",
    "servers": "/servers",
    "server": "/servers/tracker",
    "log": "/servers/tracker/log",
    "add-server": "/servers/new",
    "tools": "/tools?server=orders",
    "tool": "/tools/orders/list_payments?arguments=%7B%22order%22%3A%22K-2291%22%7D",
    "agents": "/agents",
    "agent": "/agents/{agent}",
    "sessions": "/sessions",
    "session": "/sessions/{ended}",
    "approval": "/sessions/{waiting}",
    "access": "/access?tool=orders/refund&agent={agent}",
    "who-may-use-what": "/access/reach",
    "tool-set": "/access/tools?agent={agent}",
    "activity": "/activity",
    "connect": "/connect",
    "schedules": "/schedules",
    "waiting": "/waiting",
    "settings": "/settings",
}


def main() -> int:
    """Take all pictures. Fails if one is too large."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if program is None:
        print("There is no Chromium here: install one, such as Debian's package chromium.", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with demonstration() as (console, names), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        context = browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, reduced_motion="reduce")
        page = context.new_page()
        page.goto(console)
        url = page.url.partition("/console")[0].rstrip("/")
        names["agent"] = agent_of(page, url)
        for name, path in SCREENS.items():
            page.goto(url + path.format_map(names))
            if name == "tool":
                page.get_by_role("button", name="Call tool").click()
                page.get_by_text("Structured content").wait_for()
            take(page, name)
        browser.close()
    large = [path.name for path in sorted(PICTURES.glob("*.png")) if path.stat().st_size > LARGEST]
    for name in large:
        print(f"{name} has more than {LARGEST} bytes.", file=sys.stderr)
    return 1 if large else 0


def take(page: Page, name: str) -> None:
    """Take both pictures of the current page."""
    page.wait_for_function("window.htmx !== undefined")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=PICTURES / f"{name}-{scheme}.png")


def agent_of(page: Page, url: str) -> str:
    """Return an agent of the demonstration, the one with the most to show."""
    answer = page.request.get(f"{url}/agents", headers={"accept": "application/json"})
    known = [str(each["id"]) for each in answer.json()["agents"]]
    return "support" if "support" in known else known[0]


@contextmanager
def demonstration() -> Generator[tuple[str, dict[str, str]]]:
    """Run a demonstration until its approval. Yields the console's address and the ids of both sessions."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"HOME": folder, "PATH": Environment.current()["PATH"]}
        command = [sys.executable, "-m", "toolcrib", "demo", "--json", "--no-open"]
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            yield read_events(process)
        finally:
            watchdog.cancel()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT)


def read_events(process: "subprocess.Popen[str]") -> tuple[str, dict[str, str]]:
    """Read the demonstration's events until a call waits for a person."""
    assert process.stdout is not None
    console, names = "", dict[str, str]()
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "ready":
            console = str(event["console"])
        elif event["event"] == "session" and event["state"] in ("completed", "waiting"):
            names["ended" if event["state"] == "completed" else "waiting"] = str(event["sessionId"])
            if event["state"] == "waiting":
                return console, names
    raise RuntimeError("The demonstration ended before anything waited.")


if __name__ == "__main__":
    sys.exit(main())
