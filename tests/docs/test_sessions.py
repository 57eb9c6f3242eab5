"""docs/sessions.md: its table lists every route, and its commands work."""

import re
import shlex
from pathlib import Path

import anyio
import httpx2
import orjson
import pytest

from http_clients import PLAIN
from toolcrib.base.home import owner_token
from toolcrib.base.settings import Environment, Settings
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.api.routes import create_api
from toolcrib.web.login import Logins
from toolcrib.web.run import Holding, hold

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sessions.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.anyio


class Runtime(PlayedRunner):
    """Answers every prompt alike, in place of Claude Code."""

    name = "claude"


async def test_table_lists_every_route_of_sessions(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    async with hold(settings, kind="serve", port=0, environment=Environment({"HOME": str(tmp_path)})) as holding:
        paths = create_api(holding.crib, Logins("127.0.0.1:1")).openapi()["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/api/sessions")
    }
    assert set(re.findall(r"^\| `(\w+ /api/sessions[^`]*)`", PAGE, re.MULTILINE)) == routes


async def test_commands_of_the_page_work(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    async with hold(settings, kind="serve", port=0, environment=Environment({"HOME": str(tmp_path)})) as holding:
        holding.crib.runners.add(Runtime({"default": [{"blocks": [{"text": "Nothing changed."}]}]}))
        lines: list[str] = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
        assert len(lines) == 3
        created = orjson.loads(await send(holding, lines[0].replace("/home/me/project", str(tmp_path)), "", ""))
        assert created["agentId"] == "reviewer"
        await send(holding, lines[1], created["id"], "")
        assert b"Nothing changed." in await send(holding, lines[2], created["id"], "event: done")


async def send(holding: Holding, line: str, id: str, until: str) -> bytes:
    """Send the request of a curl line with the page's variables. Return the answer up to the text `until`."""
    token = owner_token(holding.crib.home)
    variables = {
        "$crib": holding.info.url,
        "$id": id,
        "$auth": f"Authorization: Bearer {token}",
        "$json": "Content-Type: application/json",
    }
    for name, value in variables.items():
        line = line.replace(name, value)
    words = shlex.split(line)
    headers = dict(words[number + 1].split(": ", 1) for number, word in enumerate(words) if word == "-H")
    body = words[words.index("-d") + 1] if "-d" in words else None
    (url,) = [word for word in words if word.startswith("http")]
    received = b""
    with anyio.fail_after(20):
        async with (
            httpx2.AsyncClient(trust_env=False, verify=PLAIN, timeout=60) as client,
            client.stream("GET" if body is None else "POST", url, headers=headers, content=body) as answer,
        ):
            assert answer.is_success
            async for piece in answer.aiter_bytes():
                received += piece
                if until and until.encode() in received:
                    break
    return received
