"""Schedules in a browser: create, describe, save, pause and resume; and the settings page."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]


def test_schedule_is_described_saved_paused_and_resumed(page: Page, axe: Axe, picture: Picture) -> None:
    page.goto("/schedules")
    assert axe(page) == []
    page.get_by_role("link", name="New…").click()
    expect(page.locator("#when")).to_contain_text("next:")
    page.get_by_label("Prompt").fill("Look at what is new.")
    page.get_by_role("radio", name="every").check()
    page.get_by_label("Interval").fill("2")
    page.get_by_label("Unit").select_option("days")
    expect(page.locator("#when")).to_contain_text("Every 2 days")
    assert axe(page) == []
    picture(page, "schedule-new")
    page.get_by_text("More options:").click()
    page.get_by_label("Overlap").select_option("start it afterwards")
    page.get_by_label("Retries").fill("2")
    assert axe(page) == []
    picture(page, "schedule-more")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Look at what is new.")).to_be_visible()
    assert axe(page) == []
    picture(page, "schedule")
    page.get_by_text("Edit…").click()
    page.get_by_text("More options:").click()
    expect(page.get_by_label("Overlap")).to_have_value("wait")
    expect(page.get_by_label("Retries")).to_have_value("2")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".facts")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("link", name="Schedules").first.click()
    expect(page.locator(".schedules > li")).to_contain_text("Every 2 days")
    assert axe(page) == []
    picture(page, "schedules")


def test_settings_page_shows_the_port(page: Page, axe: Axe, picture: Picture) -> None:
    page.goto("/settings")
    expect(page.get_by_role("rowheader", name="port The port")).to_be_visible()
    assert axe(page) == []
    picture(page, "settings")
