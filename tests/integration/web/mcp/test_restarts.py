"""TypeScript clients that were connected before a restart of the crib."""

import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from lab import Lab, make_lab
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("restarted.mjs")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return make_lab(tmp_path)


async def line_of(stream: BufferedByteReceiveStream) -> str:
    with anyio.fail_after(60):
        return (await stream.receive_until(b"\n", 65_536)).decode()


@pytest.mark.parametrize("sdk", ["1", "2"])
async def test_typescript_client_works_after_a_restart(lab: Lab, node_programs: Path, sdk: str) -> None:
    command = [str(node_programs / "node"), str(SCRIPT), str(node_programs.parent), sdk]
    async with hold(lab.settings, kind="serve") as holding:
        url, port = holding.mcp_url, holding.crib.port
        client: Process = await anyio.open_process([*command, url, lab.token], stderr=subprocess.DEVNULL)
        assert client.stdout is not None
        assert client.stdin is not None
        output = BufferedByteReceiveStream(client.stdout)
        assert "hi" in await line_of(output)
    async with hold(replace(lab.settings, port=port), kind="serve"), client:
        await client.stdin.send(b"again\n")
        assert '{"said":"hi"}' in await line_of(output)
        await client.stdin.aclose()
        await client.wait()
