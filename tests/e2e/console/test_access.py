"""Access in a browser: check a decision, add and simulate rules, and create and revoke a token."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from e2e.shell import Shell

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]


def test_checked_access_leads_to_a_rule_that_can_be_removed_and_restored(
    page: Page, person: Shell, axe: Axe, picture: Picture
) -> None:
    page.goto("/access")
    assert axe(page) == []
    page.get_by_label("Agent none (you)").select_option("Builder")
    page.get_by_label("Tool", exact=True).fill("lab/greet")
    page.get_by_label("Source IDE (MCP)").select_option("API")
    page.get_by_role("button", name="Check access").click()
    expect(page.get_by_role("heading", name="Needs approval")).to_be_visible()
    expect(page.locator("tr.decides")).to_contain_text("mode")
    assert axe(page) == []
    picture(page, "access")
    page.get_by_role("button", name="Add this rule").click()
    expect(page.get_by_role("heading", name="Allowed")).to_be_visible()
    page.locator("tr.decides").get_by_role("link").click()
    row = page.locator("li", has_text="lab/greet")
    assert axe(page) == []
    picture(page, "access-rules")
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("allow")


def test_rule_is_simulated_on_past_calls(page: Page, person: Shell, axe: Axe, picture: Picture) -> None:
    assert person.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    page.goto("/access/rules")
    page.get_by_label("Effect").select_option("deny")
    page.get_by_label("Tools", exact=True).fill("lab/*")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text("The decision changes for")).to_be_visible()
    assert axe(page) == []
    picture(page, "access-simulate")


def test_token_is_shown_once_restricted_and_revoked(page: Page, axe: Axe, picture: Picture) -> None:
    page.goto("/access/tokens")
    page.get_by_label("New token").fill("cursor")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Copy").click()
    assert str(page.evaluate("navigator.clipboard.readText()")).startswith("tcb_")
    assert axe(page) == []
    picture(page, "access-tokens")
    page.get_by_role("link", name="Tools of cursor").click()
    page.get_by_role("checkbox", name="lab", exact=True).click()
    expect(page.locator("li", has_text="lab")).to_contain_text("none of")
    expect(page.get_by_text("Holds as 1 deny rule")).to_be_visible()
    page.get_by_role("searchbox", name="Search tools").fill("greet")
    expect(page.get_by_role("checkbox", name="lab/greet")).not_to_be_checked()
    assert axe(page) == []
    picture(page, "access-tools")
    page.goto("/access/reach?who=cursor&pattern=lab/greet")
    page.locator("td").get_by_role("button").focus()
    expect(page.get_by_text("It is not in the tool set of cursor.").first).to_be_visible()
    page.goto("/tools/lab/greet")
    expect(page.locator("dl.users")).to_contain_text("token cursor")
    assert axe(page) == []
    page.goto("/access/tokens")
    page.get_by_role("button", name="Revoke cursor").click()
    expect(page.locator("li", has_text="cursor")).to_contain_text("revoked")
    for path in ("reach", "bundles", "projects", "../tools/review", "../agents/builder/categories"):
        page.goto(f"/access/{path}")
        assert axe(page) == []
        picture(page, f"access-{path.rpartition('/')[2]}")
