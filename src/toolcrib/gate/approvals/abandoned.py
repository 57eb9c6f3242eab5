"""Finds the approvals whose waiting calls ended with their node, in a database that several nodes share."""

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

import anyio

from toolcrib.store.approvals import load_asking_cribs
from toolcrib.store.engine import Store

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks."""

Alive: TypeAlias = Callable[[], Awaitable[Collection[str]]]
"""Returns the nodes whose calls may still be waiting."""


async def follow_abandoned(store: Store, alive: Alive, close: Callable[[Collection[str]], Awaitable[object]]) -> None:
    """Close the approvals of ended nodes until cancelled; `close` also closes those that have expired."""
    while True:
        await anyio.sleep(LOOK_SECONDS)
        try:
            waiting = await load_asking_cribs(store)
            if waiting:
                await close(waiting.difference(await alive()))
        except Exception as error:  # noqa: BLE001 boundary: the next round tries again
            logger.warning("Could not close the approvals of ended nodes: %s", error)
