"""The page of an approval link in a real browser, as wide as a small phone."""

import threading
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from e2e.console.conftest import NARROW
from e2e.shell import Serving, Shell

ADDRESS = "https://phone.example"
WIDEST = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell whose crib has an address for links."""
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    (shell.home / "toolcrib.toml").write_text(f'approval_address = "{ADDRESS}"\n', encoding="utf-8")
    return shell


@pytest.mark.parametrize("scripts", [True, False])
def test_link_is_answered_on_a_small_phone_with_and_without_scripts(
    browser: Browser, crib: Serving, person: Shell, axe: Callable[[Page], list[str]], scripts: bool
) -> None:
    token = (person.home / "token").read_text(encoding="utf-8").strip()
    with httpx2.Client(base_url=crib.url, trust_env=False, timeout=60) as client:
        owner = {"authorization": f"Bearer {token}"}
        answers: list[httpx2.Response] = []
        body = {"arguments": {"name": "a" * 3000, "times": 1}}

        def call() -> None:
            answers.append(client.post("/api/tools/lab/greet/call?mode=default", json=body, headers=owner))

        thread = threading.Thread(target=call)
        thread.start()
        pending: list[dict[str, str]] = []
        while not pending:
            pending = client.get("/api/approvals?status=pending", headers=owner).json()
        created = client.post(f"/api/approvals/{pending[0]['id']}/link", headers=owner).json()

        def forward(route: Route) -> None:
            """Forward a request like a proxy in front of the crib."""
            asked = route.request
            headers = {name: value for name, value in asked.all_headers().items() if not name.startswith(":")}
            answer = client.request(
                asked.method,
                asked.url.removeprefix(ADDRESS),
                headers=headers | {"host": "phone.example"},
                content=asked.post_data_buffer,
            )
            passed = {name: value for name, value in answer.headers.items() if name not in ("content-length",)}
            route.fulfill(status=answer.status_code, headers=passed, body=answer.content)

        context = browser.new_context(
            viewport={"width": NARROW[0], "height": NARROW[1]}, java_script_enabled=scripts, bypass_csp=scripts
        )
        context.route(f"{ADDRESS}/**", forward)
        page = context.new_page()
        page.goto(created["url"])
        expect(page.get_by_role("heading")).to_contain_text("lab/greet")
        buttons = page.get_by_role("button")
        boxes = [box for each in buttons.all() if (box := each.bounding_box()) is not None]
        assert len(boxes) == 2
        assert all(box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= NARROW[0] for box in boxes)
        if scripts:
            page.evaluate("document.querySelector('h1 code').textContent = 'server/' + 'x'.repeat(128)")
            assert page.evaluate(WIDEST) <= NARROW[0]
            assert axe(page) == []
        page.get_by_role("button", name="Approve once").click()
        expect(page.get_by_role("heading")).to_have_text("Approved")
        thread.join(60)
        assert answers and answers[0].status_code == 200
        context.close()
