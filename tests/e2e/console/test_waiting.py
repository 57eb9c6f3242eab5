"""Judging a call in a real browser: every part is in sight, and collapsed parts must be opened before approval."""

import json
import threading
from collections.abc import Callable, Generator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from e2e.console.conftest import Complaints
from e2e.shell import Serving, Shell
from toolcrib.model.json import JsonObject

LONG = "x" * 12_841 + "rm -rf ~"


@pytest.fixture
def call(crib: Serving, person: Shell) -> Generator[Callable[[JsonObject], threading.Thread]]:
    """Return a function that calls `lab/greet`, which requires approval, in a thread."""
    token = (person.home / "token").read_text(encoding="utf-8").strip()
    threads: list[threading.Thread] = []

    def ask(arguments: JsonObject) -> None:
        httpx2.post(
            f"{crib.url}/api/tools/lab/greet/call?mode=default",
            json={"arguments": arguments},
            headers={"authorization": f"Bearer {token}"},
            timeout=60,
            trust_env=False,
        )

    def start(arguments: JsonObject) -> threading.Thread:
        thread = threading.Thread(target=ask, args=(arguments,))
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_call_is_approved_after_its_hidden_part_was_opened_with_the_keyboard(
    page: Page, call: Callable[[JsonObject], threading.Thread], axe: Callable[[Page], list[str]]
) -> None:
    page.goto("/waiting")
    call({"name": LONG, "times": 1})
    card = page.locator("form.ask")
    expect(card).to_contain_text("12,849 characters")
    approve = card.get_by_role("button", name="Approve once")
    expect(approve).to_be_disabled()
    expect(card.get_by_role("status")).to_have_text("Open 1 collapsed argument to approve.")
    expect(card.locator("pre").first).not_to_be_visible()
    card.focus()
    page.keyboard.press("Enter")  # a disabled button ignores the key
    expect(approve).to_be_disabled()
    before = approve.bounding_box()
    assert before is not None
    summary = card.locator("details[data-part] summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(card.locator("details[data-part] pre")).to_contain_text("rm -rf ~")
    expect(approve).to_be_enabled()
    summary.focus()
    page.keyboard.press("Enter")  # closing it again changes nothing
    expect(approve).to_be_enabled()
    after = approve.bounding_box()
    assert after is not None
    assert (after["x"], after["y"]) == (before["x"], before["y"])
    assert axe(page) == []
    approve.click()
    expect(page.locator("#waiting")).to_contain_text("Nothing is waiting for you.")


def test_opened_part_stays_open_when_another_call_arrives(
    page: Page, call: Callable[[JsonObject], threading.Thread]
) -> None:
    page.goto("/waiting")
    call({"name": LONG})
    first = page.locator("form.ask").first
    first.locator("details[data-part] summary").click()
    expect(first.get_by_role("button", name="Approve once")).to_be_enabled()
    call({"name": "x" + "\n" * 300 + "rm -rf ~"})
    expect(page.locator("form.ask")).to_have_count(2)
    expect(page.locator("form.ask").last).to_contain_text("\\{300 line breaks}rm -rf ~")
    expect(page.locator("form.ask").last).to_contain_text("a run of 300 blanks")
    expect(first.get_by_role("button", name="Approve once")).to_be_enabled()
    first.get_by_role("button", name="Approve once").click()
    expect(page.locator("form.ask")).to_have_count(1)
    page.locator("form.ask").get_by_role("button", name="Deny").click()
    expect(page.locator("#waiting")).to_contain_text("Nothing is waiting for you.")


def test_browser_can_install_the_console_as_an_app(page: Page) -> None:
    page.goto("/waiting")
    devtools: Any = page.context.new_cdp_session(page)
    found: JsonObject = devtools.send("Page.getAppManifest")
    assert found["errors"] == []
    assert found["url"].endswith("/manifest.webmanifest")
    obstacles: JsonObject = devtools.send("Page.getInstallabilityErrors")
    assert {each["errorId"] for each in obstacles["installabilityErrors"]} <= {
        "in-incognito"
    }  # browser contexts of tests are incognito


NOTIFICATIONS = """
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(title, options) { document.body.dataset.shown = `${title}: ${options.body}`; }
};
document.hasFocus = () => false;
"""


def test_allowed_notification_names_the_pending_call(
    page: Page, call: Callable[[JsonObject], threading.Thread], complaints: Complaints
) -> None:
    complaints.expect("does not support the Push API in incognito mode")  # so the open tab shows the notification
    page.add_init_script(NOTIFICATIONS)
    page.goto("/waiting")
    button = page.get_by_role("button", name="Enable notifications")
    button.click()
    expect(button).to_be_hidden()
    call({"name": "Ann"})
    expect(page.locator("body")).to_have_attribute("data-shown", "Approval needed: lab/greet")
    page.locator("form.ask").get_by_role("button", name="Deny").click()
    expect(page.locator("#waiting")).to_contain_text("Nothing is waiting for you.")


PUSHES = """
Object.defineProperty(Notification, "permission", {value: "default", writable: true});
Notification.requestPermission = async () => (Notification.permission = "granted");
window.kept = null;
PushManager.prototype.getSubscription = async () => window.kept;
PushManager.prototype.subscribe = async ({applicationServerKey}) => {
  const shape = {endpoint: "https://push.example/capability", keys: {
    p256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    auth: "BTBZMqHH6r4Tts7J_aSIgg"}};
  if (atob(applicationServerKey.replaceAll("-", "+").replaceAll("_", "/")).length !== 65) throw new Error("no key");
  return (window.kept = {toJSON: () => shape});
};
"""


def test_browser_subscribes_to_push_and_is_removed_in_the_settings(page: Page) -> None:
    page.add_init_script(PUSHES)
    page.goto("/waiting")
    button = page.get_by_role("button", name="Enable notifications")
    with page.expect_response(lambda answer: answer.url.endswith("/notifications")) as answered:
        button.click()
    assert answered.value.status == 201
    expect(button).to_be_hidden()
    assert page.evaluate("navigator.serviceWorker.ready.then(({active, scope}) => new URL(scope).pathname)") == "/"
    page.goto("/settings")
    expect(page.get_by_role("region", name="Push notifications")).to_contain_text("push.example")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", name="All settings")).to_be_visible()
    expect(page.get_by_role("region", name="Push notifications")).to_have_count(0)


def test_service_worker_shows_a_pushed_message(page: Page) -> None:
    page.context.grant_permissions(["notifications"])
    page.goto("/waiting")
    page.evaluate("navigator.serviceWorker.register('/service-worker.js').then(() => navigator.serviceWorker.ready)")
    devtools: Any = page.context.new_cdp_session(page)
    found: list[JsonObject] = []

    def collect(event: JsonObject) -> None:
        found.extend(event["registrations"])

    devtools.on("ServiceWorker.workerRegistrationUpdated", collect)
    devtools.send("ServiceWorker.enable")
    while not found:
        page.evaluate("new Promise(requestAnimationFrame)")  # DevTools events arrive meanwhile
    message = {"title": "Approval needed", "body": "lab/greet", "tag": "a1", "url": "/waiting#ask-a1"}
    origin = page.evaluate("location.origin")
    push = {"origin": origin, "registrationId": found[0]["registrationId"], "data": json.dumps(message)}
    devtools.send("ServiceWorker.deliverPushMessage", push)
    shown = (
        "async () => (await (await navigator.serviceWorker.ready).getNotifications()).map((n) => [n.body, n.data.url])"
    )
    while (notifications := page.evaluate(shown)) == []:
        page.evaluate("new Promise(requestAnimationFrame)")
    assert notifications == [["lab/greet", "/waiting#ask-a1"]]
