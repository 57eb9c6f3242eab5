"""Projects in a browser: a server in the project's own file, and switches for its tools."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from e2e.shell import Shell

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]
TESTS = Path(__file__).resolve().parents[2]
PHONE = {"width": 390, "height": 800}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def project(person: Shell) -> Path:
    """Create a directory in the person's home."""
    directory = person.folder / "garden"
    directory.mkdir()
    return directory


def test_server_is_added_to_a_project_and_its_tools_are_switched(
    page: Page, project: Path, axe: Axe, picture: Picture
) -> None:
    page.goto("/access/projects")
    page.get_by_label("Directory").fill(str(project))
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name=f"Add server to {project}").click()
    expect(page.get_by_label("Scope")).to_have_value("project")
    assert axe(page) == []
    command = {"command": sys.executable, "args": ["-m", "upstreams.legacy", "plain"], "cwd": str(TESTS)}
    page.get_by_label("Server", exact=False).first.fill(json.dumps({"mcpServers": {"legacy": command}}))
    page.get_by_role("button", name="Preview", exact=True).click()
    written = project / ".toolcrib" / "mcp.json"
    expect(page.get_by_role("region", name=f"in {written}")).to_contain_text("legacy")
    assert not written.exists()
    assert axe(page) == []
    picture(page, "project-server-new")
    page.get_by_role("button", name="Save and test").click()
    expect(page.locator(".head").get_by_text("Connected", exact=True)).to_be_visible()
    assert list(json.loads(written.read_text(encoding="utf-8"))["mcpServers"]) == ["legacy"]
    page.goto("/access/projects")
    page.get_by_role("link", name=f"Tools of {project}").click()
    page.get_by_role("checkbox", name="legacy", exact=True).click()
    expect(page.locator("li", has_text="legacy")).to_contain_text("none of")
    expect(page.get_by_text("Holds as 1 deny rule")).to_be_visible()
    assert axe(page) == []


def test_copying_a_server_to_an_apps_file_is_undone(
    page: Page, person: Shell, project: Path, axe: Axe, picture: Picture
) -> None:
    assert person.run("mcp", "add", "clock", "--", "no-such-clock").returncode == 0
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    page.goto(f"/servers/clock/setup?cwd={quote(str(project))}")
    page.get_by_label("File", exact=True).select_option("Cursor (.cursor/mcp.json)")
    copying = page.locator("form", has=page.get_by_label("File", exact=True))
    copying.get_by_role("button", name="Preview").click()
    written = project / ".cursor" / "mcp.json"
    expect(page.get_by_role("region", name=f"in {written}")).to_contain_text("no-such-clock")
    assert not written.exists()
    assert axe(page) == []
    assert page.evaluate(OVERFLOW) <= 0
    picture(page, "project-copy")
    copying.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert "clock" in json.loads(written.read_text(encoding="utf-8"))["mcpServers"]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Undone")).to_be_visible()
    assert not written.exists()
