"""MCP Apps in the console, in a real browser: well-behaved and hostile pages, and what requires consent."""

import json
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, FrameLocator, Page, StorageState, expect

from e2e.console.conftest import ARGUMENTS, Complaints
from e2e.shell import Serving, Shell
from long_tests import takes_long
from programs import chromium, installed
from toolcrib.model.json import JsonObject

TESTS = Path(__file__).parents[2]
TYPE = "text/html;profile=mcp-app"
PAGES = Path(__file__).parent / "app_pages"


class Sink(BaseHTTPRequestHandler):
    """Records requests."""

    asked: list[str]

    def do_GET(self) -> None:
        """Record the path and answer."""
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def sink() -> Generator[tuple[str, list[str]]]:
    """Run a server that no page may reach. Yields its URL and the requested paths."""
    asked: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("OneSink", (Sink,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def html(name: str, **words: str) -> str:
    """Return a page, with the bridge in it and capital words replaced."""
    text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
    for word, value in {"BRIDGE": (PAGES / "bridge.js").read_text(encoding="utf-8"), **words}.items():
        text = text.replace(word, value)
    return text


def offer(pages: dict[str, JsonObject], more: tuple[JsonObject, ...] = ()) -> JsonObject:
    tools: list[JsonObject] = [
        {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": f"ui://{name}"}}}
        for name in pages
    ]
    contents = {f"ui://{name}": {"mimeType": TYPE, **page} for name, page in pages.items()}
    return {"tools": [*tools, *more], "contents": contents}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, sink: tuple[str, list[str]]) -> Shell:
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    csp = {"connectDomains": [sink[0], "https://a.example; script-src *"]}
    pages = {
        "well_behaved": {"text": html("well_behaved")},
        "hostile": {"text": ""},
        "attacks": {"text": html("attacks", SINK=sink[0])},
        "flood": {"text": html("flood")},
        "reaches": {"text": html("reaches", SINK=sink[0]), "_meta": {"ui": {"csp": csp}}},
        "plain": {"text": "<p>", "mimeType": "text/html"},
    }
    plain: JsonObject = {"inputSchema": {"type": "object"}}
    more = ({"name": "write", **plain}, {"name": "for_model", **plain, "_meta": {"ui": {"visibility": ["model"]}}})
    servers: JsonObject = {}
    for name, offered in (("panels", offer(pages, more)), ("other", {"tools": [{"name": "secret", **plain}]})):
        file = shell.folder / f"{name}.json"
        file.write_text(json.dumps(offered), encoding="utf-8")
        arguments = ["-S", "-m", "upstreams.json_file", str(file)]
        servers[name] = {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(TESTS)}}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return shell


@pytest.fixture(scope="module")
def datagrams() -> Generator[socket.socket]:
    """Open a UDP socket that no page may send to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.setblocking(False)
        yield opened


@pytest.fixture(scope="module")
def pages(person: Shell, crib: Serving, sink: tuple[str, list[str]], datagrams: socket.socket) -> None:
    """Put the addresses of the crib and the forbidden servers into the hostile page."""
    file = person.folder / "panels.json"
    offered: JsonObject = json.loads(file.read_text(encoding="utf-8"))
    words = {"WSINK": sink[0].replace("http", "ws"), "SINK": sink[0], "CRIB": crib.url}
    words["UDP"] = f"127.0.0.1:{datagrams.getsockname()[1]}"
    offered["contents"]["ui://hostile"]["text"] = html("hostile", **words)
    file.write_text(json.dumps(offered), encoding="utf-8")


def call(page: Page, tool: str) -> None:
    page.goto(f"/tools/panels/{tool}")
    page.get_by_role("button", name="Call tool").click()


def open_app(page: Page, tool: str) -> FrameLocator:
    """Open an app, also in a browser that cannot contain it."""
    call(page, tool)
    anyway = page.get_by_role("button", name="Show app anyway")
    expect(page.locator("mcp-app iframe[src]").or_(anyway)).to_be_visible()
    if anyway.is_visible():
        anyway.click()
    return page.frame_locator("mcp-app iframe")


@pytest.mark.usefixtures("pages")
def test_app_receives_its_call_and_its_writes_require_approval(page: Page, axe: Callable[[Page], list[str]]) -> None:
    frame = open_app(page, "well_behaved")
    expect(frame.locator("#hello")).to_have_text('["2026-01-26","light","well_behaved"]')
    expect(frame.locator("#tool-input")).to_have_text('{"arguments":{}}')
    expect(frame.locator("#tool-result")).to_contain_text("called well_behaved")
    expect(page.locator("mcp-app iframe")).to_have_attribute("height", "444")
    page.emulate_media(color_scheme="dark")
    expect(frame.locator("#host-context-changed")).to_have_text('{"theme":"dark"}')
    frame.get_by_role("button", name="Act").click()
    card = page.locator(".app-asks form")
    expect(page.locator(".app-asks")).to_contain_text("The app of panels asks:")
    expect(card).to_contain_text("panels › write")
    assert axe(page) == []
    card.get_by_role("button", name="Approve once").click()
    expect(frame.locator("#acted")).to_contain_text("called write")
    expect(card).to_have_count(0)
    page.goto("/activity")
    expect(page.locator("main")).to_contain_text("app of panels")


def heard(said: ConsoleMessage) -> str:
    return f"{said.text} ({said.location['url']})"


@takes_long
def test_published_apps_work(
    tmp_path: Path, browser: Browser, complaints: Complaints, pytestconfig: pytest.Config
) -> None:
    """Run servers by the authors of MCP Apps, whose pages use the official library."""
    programs = installed("ui_servers", pytestconfig) / "node_modules" / ".bin"
    shell = Shell.at(tmp_path)
    path = f"{Path(str(shutil.which('node'))).parent}:/usr/bin:/bin"
    servers = {
        name: {"command": str(programs / f"mcp-server-{name}"), "args": ["--stdio"], "env": {"PATH": path}}
        for name in ("basic-vanillajs", "debug")
    }
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with shell.serving("--no-open") as crib, browser.new_context(base_url=crib.url) as context:
        page = context.new_page()
        page.on("console", lambda said: complaints.found.extend([heard(said)] if said.type == "error" else []))
        page.goto(str(crib.ready["console"]))
        page.goto("/tools/basic-vanillajs/get-time")
        page.get_by_role("button", name="Call tool").click()
        frame = page.frame_locator("mcp-app iframe")
        expect(frame.locator("#server-time")).to_contain_text("20")
        first = frame.locator("#server-time").inner_text()
        frame.get_by_role("button", name="Get Server Time").click()
        page.locator(".app-asks").get_by_role("button", name="Approve once").click()
        expect(frame.locator("#server-time")).not_to_have_text(first)
        frame.get_by_role("button", name="Open Link").click()
        page.get_by_role("button", name="Dismiss").click()
        page.goto("/tools/debug/debug-tool")
        page.get_by_role("button", name="Call tool").click()
        expect(page.locator(".app-asks")).to_contain_text("debug › debug-log")


@takes_long
@pytest.mark.usefixtures("pages")
def test_link_opens_only_after_a_click(context: BrowserContext, page: Page, complaints: Complaints) -> None:
    complaints.expect("127.0.0.1:9/there")
    frame = open_app(page, "well_behaved")
    frame.get_by_role("button", name="Link").click()
    opener = page.get_by_role("link", name="Open http://127.0.0.1:9/there")
    page.get_by_role("button", name="Dismiss").click()
    expect(frame.locator("#linked").first).to_contain_text("denied by user")
    assert len(context.pages) == 1
    frame.get_by_role("button", name="Link").click()
    with context.expect_page():
        opener.click()
    expect(frame.locator("#linked").nth(1)).to_have_text("{}")


@pytest.mark.usefixtures("pages")
def test_hostile_page_reaches_nothing(page: Page, sink: tuple[str, list[str]], complaints: Complaints) -> None:
    complaints.expect("")  # the browser reports each refusal as an error
    frame = open_app(page, "hostile")
    line = frame.locator("#tried")
    expect(line).to_be_visible()
    tried: JsonObject = json.loads(line.inner_text())
    text = {name: json.dumps(value) for name, value in tried.items()}
    for name in ("dom", "cookie", "storage", "top"):
        assert tried[name] == "refused SecurityError", (name, tried[name])
    for name in ("api", "crib", "elsewhere"):
        assert tried[name] == "refused TypeError", (name, tried[name])
    for name in ("image", "cribImage", "socket"):
        assert tried[name].startswith("refused"), (name, tried[name])
    assert tried["popup"] == "null"
    assert "There is no tool" in text["other"]
    assert "There is no tool" in text["full"]
    assert "not for apps" in text["model"]
    assert "-32601" in text["method"]
    assert "Invalid URL" in text["script"]
    assert "must be a string" in text["name"]
    for name in ("Leave", "Inward", "Submit"):
        frame.get_by_role("button", name=name).click()
        expect(frame.get_by_role("navigation")).to_have_count(0)  # no page of the console appears in the frame
        open_app(page, "hostile")
    assert sink[1] == []
    assert page.url.endswith("/tools/panels/hostile")
    page.goto("/activity")
    expect(page.locator("main")).not_to_contain_text("secret")


def received(datagrams: socket.socket) -> int:
    """Return the number of STUN requests received. Datagrams of other programs to a reused port do not count."""
    count = 0
    while True:
        try:
            count += datagrams.recv(100)[4:8] == b"\x21\x12\xa4\x42"
        except BlockingIOError:
            return count


@pytest.mark.usefixtures("pages")
def test_app_sends_nothing_over_webrtc_unless_the_person_shows_it_anyway(
    browser: Browser, crib: Serving, signed_in: StorageState, datagrams: socket.socket, pytestconfig: pytest.Config
) -> None:
    for more in ((), ("--disable-features=ConnectionAllowlists",)):
        received(datagrams)
        program = chromium(pytestconfig)
        with browser.browser_type.launch(executable_path=program, args=[*ARGUMENTS, *more]) as one:
            page = one.new_context(base_url=crib.url, storage_state=signed_in).new_page()
            call(page, "hostile")
            shown, anyway = page.locator("mcp-app iframe[src]"), page.get_by_role("button", name="Show app anyway")
            tried = page.frame_locator("mcp-app iframe").locator("#tried")
            expect(shown.or_(anyway)).to_be_visible()
            if shown.is_visible():
                assert more == ()
                expect(tried).to_be_visible()
                assert received(datagrams) == 0
            else:
                assert received(datagrams) == 0
                anyway.click()
                expect(tried).to_be_visible()
                assert received(datagrams) > 0


@takes_long
@pytest.mark.usefixtures("pages")
def test_page_that_attacks_its_host_reaches_nothing(
    page: Page, sink: tuple[str, list[str]], complaints: Complaints
) -> None:
    complaints.expect("")  # the browser reports each refusal as an error
    frame = open_app(page, "attacks")
    line = frame.locator("#tried")
    expect(line).to_be_visible(timeout=20_000)
    tried: JsonObject = json.loads(line.inner_text())
    assert tried["early"] == "silent"
    for name in ("worker", "read", "write", "camera", "parentPlace", "base"):
        assert str(tried[name]).startswith("refused"), (name, tried[name])
    assert (tried["opener"], tried["siblings"]) == ("null", 0)
    assert "-32601" in json.dumps(tried["context"])
    height = page.locator("mcp-app iframe").bounding_box()
    assert height is not None
    assert height["height"] <= 910
    assert tried["nested"] == "ran"
    asked = [json.dumps(approval) for approval in page.request.get("/api/approvals").json()]
    assert any("late" in approval for approval in asked)  # the page's own calls require approval
    assert not any("nested" in approval for approval in asked)  # calls of a nested frame are ignored
    page.goto("/activity")
    expect(page.locator("main")).to_be_visible()
    assert "nested" not in page.request.get("/api/audit").text()
    assert page.url.endswith("/activity")
    before = asked_approvals(page)
    page.wait_for_timeout(1_000)
    assert asked_approvals(page) == before  # a page that was left makes no calls
    assert sink[1] == []


def asked_approvals(page: Page) -> int:
    """Return the number of approvals."""
    return len(page.request.get("/api/approvals").json())


@pytest.mark.usefixtures("pages")
def test_flood_of_messages_stops_the_app(page: Page) -> None:
    open_app(page, "flood")
    expect(page.locator("mcp-app [data-link]")).to_have_text("The app sent too many messages and was stopped.")
    expect(page.locator("mcp-app iframe")).to_have_count(0)


@takes_long
@pytest.mark.usefixtures("pages")
def test_declared_domain_is_reached_only_after_the_person_allows_it(
    page: Page, sink: tuple[str, list[str]], complaints: Complaints
) -> None:
    complaints.expect("")
    frame = open_app(page, "reaches")
    expect(frame.locator("#fetched")).to_have_text('"refused"')
    assert sink[1] == []
    expect(page.locator("mcp-app")).to_contain_text("https://a.example; script-src *")
    page.get_by_role("button", name="Allow and reload").click()
    expect(frame.locator("#fetched")).to_have_text("200")
    assert sink[1] == ["/data"]
    page.get_by_role("button", name="Withdraw").click()
    expect(frame.locator("#fetched")).to_have_text('"refused"')
    assert sink[1] == ["/data"]


@takes_long
@pytest.mark.usefixtures("pages")
def test_resource_that_is_no_app_is_not_shown(page: Page, complaints: Complaints) -> None:
    complaints.expect("422")
    call(page, "plain")
    expect(page.locator("section.result")).to_contain_text("is not a page of type")
    expect(page.locator("iframe")).to_have_count(0)
