"""Rules from repeated approvals, the sandbox, secrets and the preset of data-flow rules, in a real browser."""

import json
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from e2e.shell import Serving, Shell
from long_tests import takes_long
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.model.json import JsonObject

pytestmark = takes_long

TESTS = Path(__file__).parents[2]
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"
Axe = Callable[[Page], list[str]]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell with a server of its own, and an app with a secret in its file."""
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    system_access = {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.system_access"],
        "env": {"PYTHONPATH": str(TESTS)},
    }
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": {"system_access": system_access}}), encoding="utf-8")
    app = {"mcpServers": {"hub": {"command": "hub", "env": {"HUB_TOKEN": SECRET}}}}
    (shell.folder / ".cursor").mkdir()
    (shell.folder / ".cursor" / "mcp.json").write_text(json.dumps(app, indent=1), encoding="utf-8")
    return shell


class Caller:
    """Calls tools over REST."""

    def __init__(self, crib: Serving, person: Shell) -> None:
        token = (person.home / "token").read_text(encoding="utf-8").strip()
        headers = {"authorization": f"Bearer {token}"}
        self.client = httpx2.Client(base_url=crib.url, headers=headers, timeout=60, trust_env=False)

    def call(self, ref: str, **arguments: object) -> JsonObject:
        """Call a tool and return the answer."""
        mode = "default" if ref == "lab/greet" else "bypassPermissions"
        return self.client.post(f"/api/tools/{ref}/call?mode={mode}", json={"arguments": arguments}).json()

    def ask(self, name: str) -> threading.Thread:
        """Call `lab/greet`, which requires approval, in a thread that ends with the answer."""
        thread = threading.Thread(target=self.call, args=("lab/greet",), kwargs={"name": name})
        thread.start()
        return thread


@pytest.fixture
def caller(crib: Serving, person: Shell) -> Generator[Caller]:
    caller = Caller(crib, person)
    yield caller
    caller.client.close()


def test_repeated_approvals_offer_a_rule_that_is_edited_and_limited(page: Page, caller: Caller, axe: Axe) -> None:
    page.goto("/waiting")
    card = page.locator("form.ask")
    for day in range(3):
        call = caller.ask(f"friends of day {day}")
        card.get_by_role("button", name="Approve once").click()
        call.join(60)
        expect(card).to_have_count(0)
    call = caller.ask("friends of day 3")
    card.get_by_text("Remember…").click()
    always = card.get_by_role("group", name="Always approve")
    expect(always).to_contain_text('Allow calls of lab/greet where `/name` matches "friends of day *"')
    conditions = always.locator("textarea")
    expect(conditions).to_have_value("/name glob friends of day *\n/times equals 1")
    assert axe(page) == []
    conditions.fill("/name glob friends*\n/times equals 1")
    always.get_by_label("With these conditions").check()
    always.get_by_label("Only the next").fill("2")
    always.get_by_role("textbox", name="Until").fill("2099-12-31T18:00")
    always.get_by_role("button", name="Always approve").click()
    call.join(60)
    page.goto("/access/rules")
    row = page.locator("li", has_text="lab/greet")
    expect(row).to_contain_text("for 2 more calls")
    expect(row).to_contain_text("friends*")
    for _ in range(2):
        assert caller.call("lab/greet", name="friends")["isError"] is False
    call = caller.ask("friends")
    page.goto("/waiting")
    card.get_by_role("button", name="Deny").click()
    call.join(60)


@pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox.")
def test_access_that_the_sandbox_refused_is_allowed_with_one_click(
    page: Page, caller: Caller, person: Shell, axe: Axe
) -> None:
    private = person.folder / "private"
    private.write_text("mine", encoding="utf-8")
    page.goto("/servers/system_access/setup")
    page.get_by_label("Profile").select_option("strict")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Profile")).to_have_value("strict")
    assert caller.call("system_access/read", target=str(private))["isError"] is True
    page.goto("/servers/system_access/setup")
    refused = page.locator("form", has_text="Refused: access to")
    expect(refused).to_contain_text(str(private))
    assert axe(page) == []
    refused.get_by_role("button", name="Allow and restart").click()
    expect(page.locator("li", has_text="Also reads")).to_contain_text(str(private))
    assert caller.call("system_access/read", target=str(private))["content"][0]["text"] == "mine"
    page.get_by_role("button", name=f"Remove {private}").click()
    expect(page.locator("li", has_text="Also reads")).to_have_count(0)
    assert caller.call("system_access/read", target=str(private))["isError"] is True


def test_secret_moves_after_its_diff_was_shown_and_moves_back(page: Page, person: Shell, axe: Axe) -> None:
    file = person.folder / ".cursor" / "mcp.json"
    before = file.read_bytes()
    page.goto("/secrets")
    page.get_by_label("HUB_TOKEN of hub").check()
    page.get_by_role("button", name="Move…").click()
    preview = page.get_by_role("status", name="Move")
    expect(preview).to_contain_text("HUB_TOKEN")
    assert file.read_bytes() == before
    assert axe(page) == []
    shown = [page.content()]
    preview.get_by_role("button", name="Move", exact=True).click()
    expect(page.locator("ul.rows li", has_text="HUB_TOKEN")).to_be_visible()
    assert SECRET not in file.read_text(encoding="utf-8")
    shown.append(page.content())
    page.get_by_role("button", name="Undo last move").click()
    expect(page.get_by_role("status", name="Undo")).to_contain_text("The last move was undone.")
    assert file.read_bytes() == before
    assert not [each for each in (*shown, page.content()) if SECRET in each]


def test_preset_is_switched_on(page: Page, person: Shell, axe: Axe) -> None:
    page.goto("/access/rules")
    preset = page.locator("form", has_text="lethal trifecta")
    preset.get_by_role("button", name="Switch on").click()
    expect(preset.locator(".chip")).to_have_text("on")
    assert axe(page) == []
    assert [each["on"] for each in json.loads(person.run("rules", "preset", "--json").stdout)] == [True]
    preset.get_by_role("button", name="Switch off").click()
    expect(preset.locator(".chip")).to_have_text("off")
    assert [each["on"] for each in json.loads(person.run("rules", "preset", "--json").stdout)] == [False]
