"""Conversations in a browser, with the real Claude Code and the scripted model."""

import os
import re
from collections.abc import Callable, Generator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from e2e.console.conftest import ARGUMENTS, TIMEOUT_MS, Complaints
from e2e.shell import Serving, Shell
from e2e.tcp_proxy import TcpProxy
from programs import chromium
from toolcrib.model.json import Json
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.testing.scripted_model.variables import claude_variables

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]
MARKDOWN = "I look at **three** things:\n\n- the crib\n- the shell\n\n```python\nprint('hi')\n```\n"
COUNTED = " ".join(f"w{number:03}" for number in range(240))
PING: Json = {"tool": "mcp__toolcrib__ping", "input": {}}
COLOUR: Json = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
SCRIPTS: dict[str, Json] = {
    "look": [
        {"blocks": [{"thinking": "Let me see."}, {"text": MARKDOWN}, PING], "chunk": 6, "chunk_delay_ms": 5},
        {"blocks": [{"text": "The crib answers."}]},
    ],
    "remove": [
        {"blocks": [{"tool": "Bash", "input": {"command": "rm -rf build", "description": "Clean"}}]},
        {"blocks": [{"text": "So I leave it."}]},
    ],
    "ask": [
        {"blocks": [{"tool": "AskUserQuestion", "input": {"questions": [COLOUR]}}]},
        {"blocks": [{"text": "I heard: {{last_tool_result}}"}]},
    ],
    "count": [{"blocks": [{"text": COUNTED}], "chunk": 5, "chunk_delay_ms": 25}],
}
WATCH = """() => {
  window.seen = [];
  const look = () => {
    const words = document.querySelector(".item.text .words");
    if (words && words.textContent.trim() !== window.seen.at(-1)) window.seen.push(words.textContent.trim());
  };
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
"""Records every text that the first answer of a page has had."""
HOLD = """() => {
  const page = customElements.get("live-transcript").prototype, take = page.take, fetch = window.fetch;
  let left = 0, done = false, release = () => {};
  page.take = function (event) {
    take.call(this, event);
    done ||= event.kind === "text_message" || event.kind === "done";
    left -= 1;
    if (left <= 0 || done) release();
  };
  window.fetch = async (...request) => {
    const answer = await fetch(...request);
    if (done || !String(request[0]).includes("/items?")) return answer;
    return new Promise((resolve) => { left = 4; release = () => resolve(answer); });
  };
}"""
"""Delays each response with rendered items until four more events have arrived."""


@pytest.fixture(scope="module")
def model() -> Generator[ScriptedModel]:
    """Run the scripted model that Claude Code uses."""
    with ScriptedModel(SCRIPTS) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Shell:
    """Return a shell with a project, whose Claude Code uses the scripted model."""
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    project = shell.folder / "project"
    project.mkdir()
    variables = {**claude_variables(model.url), "PATH": os.environ["PATH"], "TOOLCRIB_DEFAULT_CWD": str(project)}
    return shell.having(**variables)


@pytest.fixture(scope="module")
def proxy(crib: Serving) -> Generator[TcpProxy]:
    """Return the proxy between the browser and the crib."""
    with TcpProxy.to(crib.port) as running:
        yield running


@pytest.fixture(scope="module")
def browser(crib: Serving, proxy: TcpProxy, pytestconfig: pytest.Config) -> Generator[Browser]:
    """Start a Chromium that reaches the crib through the proxy, including the requests of its workers."""
    rule = f"--host-resolver-rules=MAP 127.0.0.1:{crib.port} 127.0.0.1:{proxy.port}"
    program = chromium(pytestconfig)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS, rule])
        yield opened
        opened.close()


def start(page: Page, script: str) -> None:
    """Start a conversation in a mode that requires approval."""
    page.goto("/sessions")
    page.get_by_label("Message").fill(f"Go [[script:{script}]]")
    page.get_by_label("Mode").select_option("default")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("log", name="Conversation")).to_be_visible()


def waiting_card(page: Page) -> Locator:
    """Return the card that waits for the person."""
    card = page.locator(".ask")
    expect(card).to_be_visible()
    return card


def wait_for_end(page: Page) -> None:
    """Wait for the end of the answer."""
    expect(page.locator(".item.done")).to_have_text(re.compile("Done"))
    expect(page.locator("#session-head .chip").first).to_have_text("Idle")


def test_answer_streams_thoughts_markdown_and_a_call_that_is_approved_once(
    page: Page, axe: Axe, picture: Picture
) -> None:
    start(page, "look")
    card = waiting_card(page)
    expect(card).to_contain_text("toolcrib › ping")
    expect(page.locator("#pill")).to_have_text(re.compile("1 waiting"))
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    answer = page.locator(".item.text").first
    expect(answer.locator("strong")).to_have_text("three")
    expect(answer.locator("li")).to_have_text(["the crib", "the shell"])
    expect(answer.locator("pre code")).to_have_text(re.compile(r"print\('hi'\)"))
    page.locator(".item.thinking summary").click()
    expect(page.locator(".item.thinking")).to_contain_text("Let me see.")
    assert axe(page) == []
    picture(page, "session-asks")
    card.get_by_role("button", name="Approve once").click()
    wait_for_end(page)
    use = page.locator(".item.call")
    expect(use.locator("summary .chip")).to_have_text("ok")
    use.locator("summary").click()
    expect(use).to_contain_text("pong")
    expect(use).to_contain_text("Approved")
    expect(page.locator("#pill")).to_have_text("Nothing waiting")
    assert axe(page) == []
    picture(page, "session")
    use.get_by_role("link", name="Check access").click()
    expect(page.locator("#verdict")).to_be_visible()


def test_destructive_call_is_approved_by_no_key_and_enter_in_the_reason_denies(
    page: Page, axe: Axe, picture: Picture
) -> None:
    start(page, "remove")
    card = waiting_card(page)
    expect(card).to_have_class(re.compile("alarm"))
    assert axe(page) == []
    picture(page, "session-destroys")
    assert page.evaluate("document.activeElement.closest('.ask') === null")  # the card takes no focus
    for key in ("Enter", "Space", "y", "a", "Control+Enter"):
        page.keyboard.press(key)
    card.locator("pre").first.focus()
    for key in ("Enter", "Space", "y", "a"):
        page.keyboard.press(key)
    expect(card).to_be_visible()
    card.get_by_label("Reason").fill("not the build folder")
    card.get_by_label("Reason").press("Enter")
    wait_for_end(page)
    expect(page.locator(".item.call")).to_contain_text("Denied")
    expect(page.locator(".item.call")).to_contain_text("not the build folder")
    expect(page.locator(".item.text")).to_contain_text("So I leave it.")


def test_question_answered_in_one_tab_is_answered_in_the_other_tab(
    context: BrowserContext, axe: Axe, picture: Picture
) -> None:
    page, other = context.new_page(), context.new_page()
    start(page, "ask")
    expect(waiting_card(page).locator("legend")).to_have_text("Which colour?")
    other.goto(page.url)
    card = waiting_card(other)
    assert axe(other) == []
    picture(other, "session-question")
    card.get_by_label("Blue").check()
    card.get_by_role("button", name="Answer").click()
    for tab in (page, other):
        wait_for_end(tab)
        expect(tab.locator(".item.text")).to_contain_text("Blue")
        expect(tab.locator(".ask")).to_have_count(0)


def test_answer_continues_without_gap_or_repeat_after_a_lost_connection(
    page: Page, proxy: TcpProxy, complaints: Complaints
) -> None:
    complaints.expect("net::ERR")
    complaints.expect("Failed to fetch")
    start(page, "count")
    page.evaluate(WATCH)
    words = page.locator(".item.text .words")
    expect(words).to_contain_text("w020")
    proxy.cut()
    expect(page.locator("#offline")).to_contain_text("Connection lost.")
    proxy.restore()
    expect(page.locator("#offline")).to_be_hidden(timeout=TIMEOUT_MS)
    wait_for_end(page)
    expect(words).to_have_text(COUNTED)
    seen: list[str] = page.evaluate("window.seen")
    assert len(seen) > 20
    assert [text for text in seen if not COUNTED.startswith(text)] == []
    assert seen == sorted(seen, key=len)


def test_deltas_that_arrive_before_their_item_is_shown_leave_no_gap(page: Page) -> None:
    start(page, "count")
    page.evaluate(WATCH)
    page.evaluate(HOLD)
    wait_for_end(page)
    expect(page.locator(".item.text .words")).to_have_text(COUNTED)
    seen: list[str] = page.evaluate("window.seen")
    assert len(seen) > 20
    assert [text for text in seen if not COUNTED.startswith(text)] == []
    assert seen == sorted(seen, key=len)


def test_always_approve_writes_a_rule_and_the_call_is_not_asked_again(page: Page) -> None:
    start(page, "look")
    card = waiting_card(page)
    card.get_by_text("Remember…").click()
    expect(card).to_contain_text("Allow every call of toolcrib/ping, with any arguments, for sessions")
    card.get_by_role("button", name="Always approve").click()
    wait_for_end(page)
    page.get_by_label("Message").fill("Again [[script:look]]")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".item.done")).to_have_count(2)
    expect(page.get_by_label("Message")).to_have_value("")
    page.goto("/access/rules")
    expect(page.locator("[data-row]")).to_contain_text("toolcrib/ping")
