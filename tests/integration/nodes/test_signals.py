"""Signals between nodes: each reaches the others, and a node sends at most 20 notifications a second."""

import anyio
import anyio.lowlevel
import psycopg
import pytest

from toolcrib.nodes.signals import SPACING_SECONDS, Signals
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

TOPICS = 300


async def test_many_topics_share_few_notifications_and_all_arrive(postgres_url: str) -> None:
    received: set[str] = set()
    arrived = anyio.Event()

    def receive(topic: str) -> None:
        received.add(topic)
        if topic == "ready" or len(received) > TOPICS:
            arrived.set()

    async with (
        open_store(postgres_url) as store,
        open_store(postgres_url) as other,
        Signals(store, "a") as sending,
        Signals(other, "b") as listening,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as watcher,
    ):
        listening.listen(receive)
        with anyio.fail_after(30):
            while not arrived.is_set():  # the other node may not listen yet
                sending.send("ready")
                with anyio.move_on_after(SPACING_SECONDS):
                    await arrived.wait()
            arrived = anyio.Event()
            query = "SELECT 'toolcrib_' || md5(current_database() || '.' || current_schema())"
            [channel] = await (await watcher.execute(query)).fetchone() or ("",)
            await watcher.execute(f"LISTEN {channel}".encode())
            started = anyio.current_time()
            for number in range(TOPICS):
                sending.send(f"topic {number}")
                await anyio.lowlevel.checkpoint()
            await arrived.wait()
        seconds = anyio.current_time() - started
        sent = len([each async for each in watcher.notifies(timeout=0.1)])
    assert 1 <= sent <= seconds / SPACING_SECONDS + 2
