"""Every page of the console with thousands of tools: its size and its paging."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from integration.web.console.every_page import every_page, write_servers
from long_tests import takes_long

pytestmark = pytest.mark.anyio

MANY = 5_000
MOST_BYTES = 150 * 1024


@pytest.fixture
async def console(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    write_servers(tmp_path / "home", MANY)
    async with open_console(tmp_path / "home") as opened:
        yield opened


@takes_long
async def test_no_page_exceeds_150_kilobytes_with_5000_tools(console: ConsoleClient, tmp_path: Path) -> None:
    pages = {**await every_page(console, tmp_path)}
    pages |= {each: each for each in ("/access/reach?pattern=legacy/*", "/access/reach?who=builder&pattern=legacy/*")}
    sizes: dict[str, int] = {}
    for path in pages.values():
        answer = await console.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200, (path, answer.text)
        sizes[path] = len(answer.content)
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}


@takes_long
@pytest.mark.parametrize("path", ["/tools?server=legacy", "/servers/legacy", "/agents/builder/tools"])
async def test_paging_reaches_every_tool_of_5000(console: ConsoleClient, path: str) -> None:
    await console.client.post("/api/servers/legacy/test")
    names: set[str] = set()
    following: str | None = path
    while following is not None:
        page = await console.page(following)
        hrefs = [link.attributes.get("href", "") for link in page.all("a")]
        names |= {href.rpartition("legacy")[2] for href in hrefs if href.rpartition("legacy")[2][:1] in ("/", "%")}
        following = next((link.attributes["href"] for link in page.all("a") if link.text == "Next"), None)
    assert len(names) >= MANY
