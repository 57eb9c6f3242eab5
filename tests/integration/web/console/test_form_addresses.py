"""The address of every form can be opened: it redirects to the page above."""

import re
from pathlib import Path

import pytest
from starlette.routing import Match, Route

from integration.web.crib import running_crib
from toolcrib.web.console.app import console_routes

pytestmark = pytest.mark.anyio


def _filled(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "some", path)


def _is_page(routes: list[Route], path: str) -> bool:
    scope: dict[str, object] = {"type": "http", "method": "GET", "path": path, "headers": []}
    return any(each.matches(scope)[0] is Match.FULL for each in routes)


async def test_address_of_every_form_opens_a_page(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running, running.client() as client:
        routes = console_routes(running.holding.crib, "127.0.0.1:1")
        pages = {_filled(each.path) for each in routes if "GET" in (each.methods or ())}
        posted = [each.path for each in routes if "POST" in (each.methods or ())]
        forms = [path for path in posted if _filled(path) not in pages]
        assert len(forms) > 40
        wrong: dict[str, str] = {}
        for path in forms:
            answer = await client.get(_filled(path), headers={"accept": "text/html"})
            to = answer.headers.get("location", "")
            if answer.status_code != 200 and not (answer.status_code == 303 and _is_page(routes, to)):
                wrong[path] = f"{answer.status_code} {to}"
        assert wrong == {}


@pytest.mark.parametrize(
    ("form", "page"),
    [
        ("/agents/ann/clone", "/agents/ann"),
        ("/access/rules/7/remove", "/access/rules"),
        ("/secrets/set", "/secrets"),
        ("/waiting/approvals/1", "/waiting"),
        ("/tools/bench/echo/call", "/tools/bench/echo"),
        ("/sessions/1/change?cwd=/tmp", "/sessions/1?cwd=/tmp"),
        ("/tools/bench/echo%3Floud/call", "/tools/bench/echo%3Floud"),
        ("/sessions/50%25%23/change?cwd=/tmp/a%2520b%26c", "/sessions/50%25%23?cwd=/tmp/a%2520b%26c"),
    ],
)
async def test_form_address_redirects_to_the_nearest_page_above(tmp_path: Path, form: str, page: str) -> None:
    async with running_crib(tmp_path / "home") as running, running.client() as client:
        answer = await client.get(form, headers={"accept": "text/html"})
        assert (answer.status_code, answer.headers["location"]) == (303, page)
        refused = await client.get(form, headers={"accept": "application/json"})
        assert refused.status_code in (404, 405)
