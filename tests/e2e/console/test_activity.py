"""The activity page in a browser: new calls appear, are filtered and opened; the log is verified."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from e2e.shell import Shell

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]


def test_new_calls_appear_and_are_filtered_and_opened(page: Page, person: Shell, axe: Axe, picture: Picture) -> None:
    page.goto("/activity")
    expect(page.get_by_text("No calls yet.")).to_be_visible()
    assert axe(page) == []
    person.run("tools", "call", "lab/greet", '{"name": "<img src=x onerror=alert(1)>"}')
    person.run("tools", "call", "lab/fail", '{"message": "broken"}')
    expect(page.locator(".activity > li")).to_have_count(2)
    assert axe(page) == []
    picture(page, "activity")
    page.get_by_role("link", name="error 1").click()
    expect(page.locator(".activity > li")).to_have_count(1)
    page.go_back()
    page.get_by_role("link", name="lab/greet", exact=True).click()
    expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
    assert axe(page) == []
    picture(page, "activity-record")
    page.get_by_role("link", name="Check access").click()
    expect(page.locator("#verdict")).to_be_visible()


def test_log_is_verified_from_the_page(page: Page, axe: Axe) -> None:
    page.goto("/activity")
    page.get_by_role("button", name="Verify log").click()
    expect(page.get_by_text("The log is intact.")).to_be_visible()
    assert axe(page) == []
