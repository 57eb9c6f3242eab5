"""`toolcrib stdio` as an IDE starts it: alone, beside others, and when the holder of the home ends."""

import json
import subprocess
from pathlib import Path

import anyio
import pytest
from mcp import Client

from deadlines import stretched
from lab import ModeName, eventually, make_lab, stdio_parameters
from toolcrib.base.home import Home, find_holder, prepare_home

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]


async def echo(client: Client, text: str) -> object:
    return (await client.call_tool("lab_echo", {"text": text})).structured_content


def holder_of(home: Home) -> int:
    holder = find_holder(home)
    assert holder is not None
    return holder.pid


async def test_stdio_without_a_running_crib_holds_the_home(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    async with Client(stdio_parameters(lab.home), read_timeout_seconds=stretched(20)) as client:
        assert await echo(client, "alone") == {"said": "alone"}
        holder = find_holder(prepare_home(lab.home))
        assert holder is not None
        assert holder.kind == "stdio"
    await eventually(lambda: find_holder(prepare_home(lab.home)) is None)


@pytest.mark.parametrize("era", ERAS)
async def test_another_stdio_process_takes_over_when_the_holder_ends(tmp_path: Path, era: ModeName) -> None:
    lab = make_lab(tmp_path)
    home = prepare_home(lab.home)
    server = stdio_parameters(lab.home)
    command = [server.command, *server.args]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, env=server.env, cwd=server.cwd) as first:
        await eventually(lambda: find_holder(home) is not None)
        async with Client(server, mode=era, read_timeout_seconds=stretched(20)) as second:
            assert await echo(second, "second") == {"said": "second"}
            assert holder_of(home) == first.pid
            first.kill()
            await first.wait()
            assert await echo(second, "still here") == {"said": "still here"}
            assert holder_of(home) != first.pid


def test_invalid_lines_are_answered_with_errors(tmp_path: Path) -> None:
    server = stdio_parameters(make_lab(tmp_path).home)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    lines = [
        b"\xff\xfe not utf-8",
        b"{",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode(),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"lab_echo","arguments":{"text":"\xe2\x80\xa8"}}}',
        b'{"jsonrpc":"2.0","id":3,"method":"nothing/like/this"}',
    ]
    run = subprocess.run(
        [server.command, *server.args],
        input=b"\n".join(lines) + b"\n",
        env=server.env,
        cwd=server.cwd,
        capture_output=True,
        timeout=stretched(30),
    )
    answers = [json.loads(line) for line in run.stdout.split(b"\n") if line]
    assert [answer["error"]["code"] for answer in answers[:3]] == [-32700, -32700, -32600]
    by_id = {answer["id"]: answer for answer in answers[3:]}
    assert by_id[1]["result"]["protocolVersion"] == "2025-11-25"
    assert by_id["two"]["result"]["structuredContent"] == {"said": "\u2028"}
    assert by_id[3]["error"]["code"] == -32601
    assert run.returncode == 0
