"""How long a server's list is valid, and that an older list never replaces a newer one."""

from typing import cast

import anyio
import pytest

from toolcrib.model.json import Json, JsonObject
from toolcrib.upstream.exchange import UpstreamRequests
from toolcrib.upstream.handshake import ServerIntroduction
from toolcrib.upstream.keepalive import LONGEST_TTL, Keepalive, ttl_of
from toolcrib.upstream.offer import Offer
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.subscriptions import SubscribedResources


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (1, 30.0),
        (60_000, 60.0),
        (90_500.0, 90.5),
        (10**30, LONGEST_TTL),
        (0, Timing().ping_after),
        (-1, None),
        (True, None),
        ("60000", None),
        (None, None),
    ],
)
def test_lifetime_of_a_list_is_the_servers_ttl_within_bounds(sent: Json, seconds: float | None) -> None:
    assert ttl_of({"ttlMs": sent}, Timing()) == seconds


def test_list_without_a_ttl_does_not_expire() -> None:
    assert ttl_of({}, Timing()) is None


class LateServer:
    """Answers its first request for tools only when allowed to; the second one is answered at once."""

    def __init__(self) -> None:
        capabilities: JsonObject = {"tools": {}}
        self.introduction = ServerIntroduction("legacy", "2025-11-25", capabilities, {"name": "late"}, None, {})
        self.connection = self
        self.name = "late"
        self.requests = 0
        self.may_answer = anyio.Event()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Return one tool, named after the number of the request."""
        self.requests += 1
        number = self.requests
        if number == 1:
            await self.may_answer.wait()
        return {"tools": [{"name": f"tool{number}", "inputSchema": {"type": "object"}}]}


@pytest.mark.anyio
async def test_late_list_does_not_replace_a_newer_one() -> None:
    server = LateServer()
    keepalive = Keepalive(cast("UpstreamRequests", server), SubscribedResources(), Timing(), lambda _: None)
    taken: list[str] = []

    def take(offer: Offer) -> None:
        taken.append(offer.tools[0]["name"])

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keepalive.refresh, lambda: None, take)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(keepalive.refresh, lambda: None, take)
            await anyio.wait_all_tasks_blocked()
            server.may_answer.set()
    assert taken == ["tool1", "tool2"]
