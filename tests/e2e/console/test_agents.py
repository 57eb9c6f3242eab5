"""Agents in a browser: create, edit, memory, tools and history. A real MCP client reads the prompt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from playwright.sync_api import BrowserContext, Dialog, Page, expect

from deadlines import stretched
from e2e.console.conftest import Complaints
from e2e.shell import Serving, Shell
from http_clients import PLAIN

Axe = Callable[[Page], list[str]]
Picture = Callable[[Page, str], None]


def test_agent_is_created_and_a_client_receives_its_prompt(
    page: Page, context: BrowserContext, person: Shell, crib: Serving, axe: Axe, picture: Picture
) -> None:
    page.goto("/agents")
    expect(page.get_by_role("link", name="Code Reviewer")).to_be_visible()
    assert axe(page) == []
    picture(page, "agents")
    page.get_by_label("New agent").fill("Gardener")
    page.get_by_label("Template").select_option("Code Reviewer")
    page.get_by_role("button", name="Create").click()
    received = page.locator("#receives pre")
    expect(received).to_contain_text("You are now Gardener.")
    page.get_by_label("Prompt", exact=False).first.fill("Water the plants.\nAsk before you cut.")
    page.get_by_role("button", name="Save").click()
    expect(received).to_contain_text("Ask before you cut.")
    other = context.new_page()
    other.goto("/agents/gardener")
    page.get_by_role("checkbox", name="Threat model").check()
    expect(received).to_contain_text("### Threat model")
    expect(other.locator("#receives pre")).to_contain_text("### Threat model")
    expect(other.get_by_role("checkbox", name="Threat model")).to_be_checked()
    expect(page.get_by_role("heading", level=1)).to_contain_text("version 3")
    assert axe(page) == []
    page.evaluate("scrollTo(0, 0)")
    picture(page, "agent")
    assert _received(person, crib) == received.text_content()


def test_stale_edit_is_refused_and_keeps_the_typed_text(
    page: Page, context: BrowserContext, complaints: Complaints
) -> None:
    complaints.expect("412")  # the browser reports every refusal as an error
    other = context.new_page()
    for tab in (page, other):
        tab.goto("/agents/tester")
    page.get_by_label("Description").fill("The first one.")
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.get_by_role("button", name="Save").click()
    other.get_by_label("Description").fill("The second one.")
    with other.expect_response(lambda answer: answer.request.method == "POST") as refused:
        other.get_by_role("button", name="Save").click()
    assert refused.value.status == 412
    expect(other.get_by_role("alert")).to_contain_text("was changed after you opened this page")
    expect(other.get_by_label("Description")).to_have_value("The second one.")


def test_memory_tools_and_history_of_an_agent_are_edited_and_restored(page: Page, axe: Axe, picture: Picture) -> None:
    page.goto("/agents/reviewer/brain")
    page.get_by_label("New entry").fill("We use **tabs**.")
    page.get_by_label("Pinned", exact=True).first.check()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("checkbox", name="Include pinned entries in the prompt").check()
    expect(page.locator("#receives pre")).to_contain_text("- [note] We use **tabs**.")
    assert axe(page) == []
    picture(page, "agent-brain")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".timeline")).to_contain_text("We use tabs.")
    page.get_by_role("navigation", name="Agent").get_by_role("link", name="Tools").click()
    page.get_by_label("Only these tools").check()
    page.get_by_text("Advanced: patterns").click()
    page.get_by_label("Tools, one per line").fill("lab/greet")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Effective tools")).to_contain_text("1 tool")
    assert axe(page) == []
    picture(page, "agent-tools")
    page.get_by_role("navigation", name="Agent").get_by_role("link", name="History").click()
    page.get_by_role("link", name="Version 3").click()
    expect(page.locator(".diff ins").filter(has_text="lab/greet")).to_be_visible()
    assert axe(page) == []
    picture(page, "agent-history")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Code Reviewer")


def _received(person: Shell, crib: Serving) -> str:
    """Return the new agent's prompt as an MCP client receives it."""
    token = (person.home / "token").read_text().strip()

    async def ask() -> str:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20, trust_env=False, verify=PLAIN) as http,
            Client(
                streamable_http_client(f"{crib.url}/mcp", http_client=http), read_timeout_seconds=stretched(20)
            ) as client,
        ):
            names = [prompt.name for prompt in (await client.list_prompts()).prompts]
            name = next(name for name in names if name.endswith("agent_zoo_use_gardener"))
            (message,) = (await client.get_prompt(name)).messages
            assert isinstance(message.content, TextContent)
            return message.content.text

    with ThreadPoolExecutor(1) as pool:  # the browser uses the event loop of this thread
        return pool.submit(anyio.run, ask).result(60)


def test_leaving_a_page_with_unsaved_text_asks_for_confirmation(page: Page) -> None:
    page.goto("/agents/reviewer")
    dialogs: list[str] = []

    def accept(dialog: Dialog) -> None:
        dialogs.append(dialog.type)
        dialog.accept()

    page.on("dialog", accept)
    prompt = page.locator("#systemPrompt")
    before = prompt.input_value()
    prompt.click()
    prompt.press_sequentially("Never push. ")
    page.reload()
    assert dialogs == ["beforeunload"]
    expect(prompt).to_have_value(before)
    page.reload()
    assert dialogs == ["beforeunload"]
