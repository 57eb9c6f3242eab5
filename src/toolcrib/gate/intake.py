"""Upstream servers on their way into the catalog: every definition passes the pins before anybody can see it.

What servers offer changes at any time; each change is judged here, one after the other, and only what counts is put
into the catalog. Accepting or rejecting a held definition takes its servers in anew.

Above: `host` tells when something changed; REST asks what is held and brings a person's word. Below: the catalog,
`policy.pins`. It must never let a definition into the catalog that could not be judged: then the server has no tools.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio

from toolcrib.catalog.catalog import Catalog
from toolcrib.catalog.naming import NameRow
from toolcrib.catalog.snapshot import Part
from toolcrib.errors import NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ContentSource
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.pace import Pace, unhurried
from toolcrib.policy.lint import telling_names
from toolcrib.policy.pinned import PinnedSource, Told, counting, notes
from toolcrib.policy.pins import Pins

logger = logging.getLogger(__name__)

Place = Path | None

REST_SHARE = 1.0
"""How long the rest after taking something in is, as a share of how long that took."""
LONGEST_REST = 0.1
SHOWN_TOGETHER = 400
"""So many new tools are shown before others are judged."""
UNJUDGED = -1
"""The number of no judgement: who could not be judged is judged again."""


class Upstream(ContentSource, Protocol):
    """An upstream server of one place. `offer` is another object whenever what it offers changed."""

    @property
    def identity(self) -> str:
        """The same for as long as it is the same program or address, whatever it is called."""
        ...

    @property
    def offer(self) -> object:
        """What it offers, as far as that is known."""
        ...


@dataclass(frozen=True, slots=True)
class _Taken:
    """A server as it was judged, and what that was made of."""

    offer: object
    judgement: int
    part: Part
    told: Told | None


class Intake:
    """Takes servers in for one crib. `keep_names` returns when the names it is given are durable."""

    def __init__(
        self,
        catalog: Catalog,
        pins: Pins,
        upstreams: Callable[[Place], Sequence[Upstream]],
        keep_names: Callable[[Sequence[NameRow]], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._pins = pins
        self._upstreams = upstreams
        self._keep_names = keep_names
        self._one_at_a_time = anyio.Lock()
        self._taken: dict[int, _Taken] = {}
        self._judgement = 0
        self._shown: dict[Place, dict[str, object]] = {}
        self._changed: set[Place] = set()
        self._stale = anyio.Event()

    async def follow(self) -> None:
        """Take in what `changed` was told of, for as long as this runs.

        The first change is taken in at once; while more come one after the other, most of the time is left to others.
        """
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            places, self._changed = self._changed, set()
            started = anyio.current_time()
            for place in places:
                await self.take(place)
            await anyio.sleep(min(LONGEST_REST, REST_SHARE * (anyio.current_time() - started)))

    def changed(self, place: Place) -> None:
        """Something changed in a place; it is taken in soon."""
        self._changed.add(place)
        self._stale.set()

    async def take(self, place: Place) -> None:
        """Put what counts of a place's servers into the catalog, now; of many of them some after the other."""
        async with self._one_at_a_time:
            upstreams = self._upstreams(place)
            unjudged = [each for each in upstreams if not self._is_judged(each)]
            others = telling_names(self._catalog.at(None).tools if unjudged else ())
            new = 0
            for each in unjudged:
                if new >= SHOWN_TOGETHER:
                    await self._show(place, upstreams)
                    new = 0
                new += await self._judge(each, others)
            await self._show(place, upstreams)
            current = {id(each) for each in upstreams}
            if len(self._taken) > 4 * len(current) + 100:  # sources come and go; their numbers may be used again
                self._taken = {number: taken for number, taken in self._taken.items() if number in current}

    def is_taken(self, place: Place, upstream: Upstream) -> bool:
        """Whether what a server offers now is in the catalog."""
        return self._shown.get(place, {}).get(upstream.name) is upstream.offer

    def _is_judged(self, upstream: Upstream) -> bool:
        taken = self._taken.get(id(upstream))
        return taken is not None and taken.offer is upstream.offer and taken.judgement == self._judgement

    async def _judge(self, upstream: Upstream, others: Mapping[str, frozenset[str]]) -> int:
        """Find out what counts of a server; gives how many tools do."""
        offer, judgement, told = upstream.offer, self._judgement, None
        before = self._taken.get(id(upstream))
        try:
            seen = await self._pins.see(upstream.identity, upstream.tools())
            told = Told(upstream.name, seen, others, before.told if before is not None else None)
            count = counting(seen, partial(self._pins.is_accepted, upstream.identity), told)
            tools = await unhurried(map(_encoded, count))
            source = PinnedSource(upstream, tools, notes(seen))
        except Exception as error:  # boundary: a server whose tools cannot be judged has none, and all others go on
            logger.warning("The tools of %s cannot be judged.", upstream.name, exc_info=error)
            source, judgement = PinnedSource(upstream, (), (_unjudged(upstream, error),)), UNJUDGED
        part = Part.of(source)
        self._taken[id(upstream)] = _Taken(offer, judgement, part, told)
        return len(part.tools)

    async def _show(self, place: Place, upstreams: Sequence[Upstream]) -> None:
        """Put all that was judged into the catalog, under names that are kept."""
        pace = Pace()
        known = [(each.name, taken) for each in upstreams if (taken := self._taken.get(id(each))) is not None]
        parts = [taken.part for _, taken in known]
        for rows in self._catalog.reserve(parts):
            await self._keep_names(rows)
            await pace.pause()
        self._catalog.set_upstreams(_name(place), parts)
        self._shown[place] = {name: taken.offer for name, taken in known if taken.judgement == self._judgement}

    def changes(self, place: Place) -> list[JsonObject]:
        """The definitions that are held back in a place, each with its tool, how it differs and its hash."""
        return [
            {"ref": str(ToolRef(upstream.name, held.pin.tool)), "server": upstream.name, **held.to_json()}
            for upstream in self._upstreams(place)
            for held in self._pins.held(upstream.identity)
        ]

    async def accept(self, place: Place, ref: ToolRef, hash: str, by: Principal) -> None:
        """Let a definition count that a person has looked at."""
        await self._pins.accept(self._find(place, ref).identity, ref.tool, hash, by=by)
        await self._again(place)

    async def reject(self, place: Place, ref: ToolRef, hash: str, by: Principal) -> None:
        """Keep a definition out that a person has looked at."""
        await self._pins.reject(self._find(place, ref).identity, ref.tool, hash, by=by)
        await self._again(place)

    def _find(self, place: Place, ref: ToolRef) -> Upstream:
        for upstream in self._upstreams(place):
            if upstream.name == ref.server:
                return upstream
        raise NotFound("server.unknown", f'Server "{ref.server}" not found.')

    async def _again(self, place: Place) -> None:
        self._judgement += 1
        for each in {None, place}:
            await self.take(each)


def _encoded(tool: Tool) -> Tool:
    """The same, written as it is sent too, so that the first one who lists it need not wait for that."""
    _ = tool.encoded
    return tool


def _name(place: Place) -> str | None:
    return str(place) if place is not None else None


def _unjudged(upstream: Upstream, error: Exception) -> Problem:
    message = f"The tools of server {upstream.name!r} are left out: they could not be compared with what was pinned."
    if isinstance(error, ToolcribError):
        return Problem(error.code, message, error.hint)
    return Problem("internal", message, "The log says why.")
