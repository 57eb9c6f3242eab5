"""Connecting Cursor in a browser: preview, save, disconnect, and the install link."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.shell import Shell

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]
BEFORE = '{\n  // mine\n  "mcpServers": {"other": {"command": "other", "disabled": true}}\n}\n'


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell whose user has Cursor, with a server in its file."""
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    (shell.folder / ".cursor").mkdir()
    file_of(shell).write_text(BEFORE, encoding="utf-8")
    return shell


def file_of(person: Shell) -> Path:
    """Return Cursor's file of servers."""
    return person.folder / ".cursor" / "mcp.json"


def test_cursor_is_connected_after_a_preview_and_disconnect_restores_its_file(
    page: Page, person: Shell, axe: Axe, picture: Picture
) -> None:
    page.goto("/connect")
    row = page.locator("#client-cursor")
    row.get_by_role("button", name="Connect…").click()
    expect(page.locator(".diff ins").filter(has_text='"toolcrib"')).to_be_visible()
    assert file_of(person).read_text(encoding="utf-8") == BEFORE
    assert axe(page) == []
    picture(page, "connect-look")
    page.get_by_role("button", name="Save").click()
    expect(row.get_by_text("Connected", exact=True)).to_be_visible()
    written = file_of(person).read_text(encoding="utf-8")
    entry = json.loads(written.replace("// mine", ""))["mcpServers"]["toolcrib"]
    assert entry["url"].endswith("/mcp")
    assert entry["headers"]["Authorization"] not in page.content()
    assert axe(page) == []
    picture(page, "connect")
    row.get_by_role("button", name="Disconnect").click()
    expect(page.get_by_text("byte for byte")).to_be_visible()
    assert file_of(person).read_text(encoding="utf-8") == BEFORE


def test_install_link_writes_no_file_and_its_token_is_revoked(
    page: Page, person: Shell, axe: Axe, picture: Picture
) -> None:
    page.goto("/connect")
    page.get_by_role("button", name="Open in Cursor…").click()
    card = page.get_by_role("region", name="Link for Cursor")
    expect(card).to_contain_text("Authorization")
    expect(card.get_by_role("link", name="Open in Cursor")).to_have_count(0)
    card.get_by_role("button", name="Create link").click()
    link = card.get_by_role("link", name="Open in Cursor")
    expect(link).to_have_attribute("href", re.compile("^cursor://anysphere.cursor-deeplink/mcp/install"))
    assert axe(page) == []
    picture(page, "connect-link")
    card.get_by_role("button", name="Copy link").click()
    expect(page.locator("#toast")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == link.get_attribute("href")
    assert file_of(person).read_text(encoding="utf-8") == BEFORE
    card.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Token connect-cursor was revoked.")).to_be_visible()
