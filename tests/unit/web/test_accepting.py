"""Accepting connections: no connection outlives its server."""

import asyncio
import socket
import sys

import anyio
import pytest

from toolcrib.web.connections import Connections

if sys.platform == "win32":
    pytest.skip("Windows uses the event loop's own server", allow_module_level=True)

from toolcrib.web.accepting import Acceptor

pytestmark = pytest.mark.anyio


async def test_connection_set_up_while_the_server_closes_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        def connected() -> asyncio.Protocol:
            acceptor.close()
            return asyncio.Protocol()

        acceptor = Acceptor(listener, connected, Connections(10))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        with anyio.fail_after(5):
            assert await reader.read() == b""
        await acceptor.wait_closed()
        writer.close()
        await writer.wait_closed()
