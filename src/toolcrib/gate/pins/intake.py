"""Adds upstream servers to the catalog, after comparing every definition with its pin.

Servers may change what they offer at any time. Changes are judged here one after the other, and only accepted
definitions enter the catalog. Accepting or rejecting a held definition judges its servers again. After a series of
changes the notes of all servers are compared with the whole catalog once: a tool may resemble or name one that appeared
later.

Must never let a definition into the catalog that could not be judged: the server then has no tools.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Protocol

import anyio

from toolcrib.base.cooperative import Pacer, collect_paced
from toolcrib.gate.catalog.catalog import Catalog, CatalogChange, SnapshotPart
from toolcrib.gate.catalog.naming import NameRow
from toolcrib.gate.pins.lint import NO_LOOKS, NO_NAMES, Looks, clashes, lint_text, looks_of, telling_names
from toolcrib.gate.pins.pinned_content import PinnedContent, pinned_introduction, see_content
from toolcrib.gate.pins.pinned_source import LintedDefinition, LintNotes, PinnedSource, counting, notes, reviewing
from toolcrib.gate.pins.pins import HeldChange, Pins, Sighting
from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.pins import PIN_KINDS, PinKind, pin_place
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ContentSource, Introduction
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.upstream.plan import ProjectPath

logger = logging.getLogger(__name__)


REST_SHARE = 1.0
"""Length of the pause after a change, as a share of the time the change took."""
LONGEST_REST = 0.1
SHOWN_TOGETHER = 400
"""Number of new tools that are published before others are judged."""
UNJUDGED = -1
"""The judgement number of a server that could not be judged, so that it is judged again."""


class IntakeSource(ContentSource, Protocol):
    """An upstream server in one directory. `offer` is a new object whenever the server's offering changed."""

    @property
    def identity(self) -> str:
        """Stays the same as long as the program or address does, regardless of the server's name."""
        ...

    @property
    def offer(self) -> object:
        """What the server offers, as far as known."""
        ...

    @property
    def introduction(self) -> Introduction | None:
        """How the server introduced itself, as far as known."""
        ...


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The judgement on what a server offers: each tool, and the prompts and resources."""

    seen: Sequence[Sighting[Tool]]
    content: PinnedContent
    lint_notes: LintNotes


@dataclass(frozen=True, slots=True)
class _Taken:
    """A judged server, and the inputs of the judgement. It has no verdict if it could not be judged."""

    offer: object
    judgement: int
    part: SnapshotPart
    verdict: _Verdict | None


@dataclass(frozen=True, slots=True)
class _Others:
    """The tools that a server's own could be confused with."""

    names: Mapping[str, frozenset[str]]
    looks: Looks


_NO_OTHERS = _Others(NO_NAMES, NO_LOOKS)


class Intake:
    """Adds servers to the catalog of one crib. `keep_names` returns once the given names are durable."""

    def __init__(
        self,
        catalog: Catalog,
        pins: Pins,
        upstreams: Callable[[ProjectPath], Sequence[IntakeSource]],
        keep_names: Callable[[Sequence[NameRow]], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._pins = pins
        self._upstreams = upstreams
        self._keep_names = keep_names
        self._one_at_a_time = anyio.Lock()
        self._taken: dict[int, _Taken] = {}
        self._linted: dict[str, dict[str, LintedDefinition]] = {}
        self._judgement = 0
        self._shown: dict[ProjectPath, dict[str, object]] = {}
        self._changed: set[ProjectPath] = set()
        self._is_settled = True
        self._stale = anyio.Event()
        catalog.watch(self._catalog_changed)

    async def follow(self) -> None:
        """Process the changes reported to `changed`, until cancelled.

        The first change is processed at once. During a series of changes, most of the time is left to other tasks.
        """
        while True:
            await self._stale.wait()
            self._stale = anyio.Event()
            places, self._changed = self._changed, set()
            started = anyio.current_time()
            for place in places:
                await self.take(place)
            await anyio.sleep(min(LONGEST_REST, REST_SHARE * (anyio.current_time() - started)))
            if not (self._changed or self._is_settled):
                await self._settle()

    def changed(self, place: ProjectPath) -> None:
        """Schedule a directory for processing after a change."""
        self._changed.add(place)
        self._stale.set()

    def _catalog_changed(self, change: CatalogChange) -> None:
        if change.added or change.removed:
            self._is_settled = False
            self._stale.set()

    async def take(self, place: ProjectPath) -> None:
        """Judge the servers of a directory and update the catalog, in batches if there are many."""
        async with self._one_at_a_time:
            upstreams = self._upstreams(place)
            unjudged = [each for each in upstreams if not self._is_judged(each)]
            others = self._others(place) if unjudged else _NO_OTHERS
            new = 0
            for each in unjudged:
                if new >= SHOWN_TOGETHER:
                    await self._show(place, upstreams)
                    new = 0
                new += await self._review(each, others)
            await self._show(place, upstreams)
            current = {id(each) for each in upstreams}
            if len(self._taken) > 4 * len(current) + 100:  # sources come and go, and an `id` may be reused
                self._taken = {number: taken for number, taken in self._taken.items() if number in current}

    def is_taken(self, place: ProjectPath, upstream: IntakeSource) -> bool:
        """Return whether the current offering of a server is in the catalog."""
        return self._shown.get(place, {}).get(upstream.name) is upstream.offer

    def _is_judged(self, upstream: IntakeSource) -> bool:
        taken = self._taken.get(id(upstream))
        return taken is not None and taken.offer is upstream.offer and taken.judgement == self._judgement

    async def _settle(self) -> None:
        """Renew the notes on tools that resemble or name tools which appeared after they were judged."""
        async with self._one_at_a_time:
            self._is_settled = True
            for place in [*self._shown]:
                upstreams = self._upstreams(place)
                users = {id(each) for each in self._upstreams(None)} if place is not None else set[int]()
                others = self._others(place)
                # A user's server is compared with the user's servers only: what a project calls its tools is no
                # concern of other projects.
                pace, renewed = Pacer(), False
                for each in (each for each in upstreams if id(each) not in users):
                    renewed |= await self._renew(each, others)
                    await pace.pause()
                if renewed:
                    await self._show(place, upstreams)

    async def _renew(self, upstream: IntakeSource, others: "_Others") -> bool:
        """Compute the notes on a judged server again. Returns whether one of them changed."""
        taken = self._taken.get(id(upstream))
        if taken is None or taken.verdict is None or taken.offer is not upstream.offer:
            return False
        before = taken.verdict
        alike = clashes((each.tool.ref for each in before.seen), others.looks)
        verdict = replace(before, lint_notes=LintNotes(before.seen, others.names, alike, before.lint_notes))
        tools = await self._add_notes(upstream, verdict)
        if all(map(is_, tools, taken.part.source.tools())):
            return False
        part = SnapshotPart.of(_pin_source(upstream, tools, verdict))
        self._taken[id(upstream)] = replace(taken, part=part, verdict=verdict)
        return True

    async def _review(self, upstream: IntakeSource, others: "_Others") -> int:
        """Judge what a server offers. Returns the number of its accepted tools."""
        offer, judgement, verdict = upstream.offer, self._judgement, None
        before = self._taken.get(id(upstream))
        verdict_before = before.verdict if before is not None else None
        notes_before = verdict_before.lint_notes if verdict_before is not None else None
        is_again = before is not None and verdict_before is not None and before.offer is offer
        try:
            offered, identity = upstream.tools(), upstream.identity
            alike = clashes((tool.ref for tool in offered), others.looks)
            review = reviewing(others.names, alike)
            seen = await self._pins.see(identity, offered, review, is_again=is_again)
            content = await see_content(self._pins, identity, upstream, upstream.introduction, is_again=is_again)
            linted = self._linted.setdefault(identity, {})
            verdict = _Verdict(seen, content, LintNotes(seen, others.names, alike, notes_before, linted))
            source = _pin_source(upstream, await self._add_notes(upstream, verdict), verdict)
        except Exception as error:  # boundary: a server that cannot be judged has no tools, and others are unaffected
            logger.warning("The tools of %s cannot be judged.", upstream.name, exc_info=error)
            source, judgement = PinnedSource(upstream, (), (_unjudged_problem(upstream, error),)), UNJUDGED
        part = SnapshotPart.of(source)
        self._taken[id(upstream)] = _Taken(offer, judgement, part, verdict)
        return len(part.tools)

    async def _add_notes(self, upstream: IntakeSource, verdict: _Verdict) -> Sequence[Tool]:
        """Return the accepted tools with their notes, encoded for the first listing."""
        is_accepted = partial(self._pins.is_accepted, upstream.identity)
        return await collect_paced(map(_encode, counting(verdict.seen, is_accepted, verdict.lint_notes)))

    def _others(self, place: ProjectPath) -> "_Others":
        known = self._catalog.at(_name(place)).tools
        return _Others(telling_names(known), looks_of(known))

    async def _show(self, place: ProjectPath, upstreams: Sequence[IntakeSource]) -> None:
        """Publish everything judged so far to the catalog, under stored names."""
        pace = Pacer()
        known = [(each.name, taken) for each in upstreams if (taken := self._taken.get(id(each))) is not None]
        parts = [taken.part for _, taken in known]
        for rows in self._catalog.reserve(parts):
            await self._keep_names(rows)
            await pace.pause()
        self._catalog.set_upstreams(_name(place), parts)
        self._shown[place] = {name: taken.offer for name, taken in known if taken.judgement == self._judgement}

    def introduction(self, upstream: IntakeSource) -> Introduction | None:
        """Return how a server introduced itself, with the accepted texts."""
        offered = upstream.introduction
        return pinned_introduction(self._pins, upstream.identity, offered) if offered is not None else None

    def changes(self, place: ProjectPath) -> list[JsonObject]:
        """Return the held definitions in a directory, each with its subject, differences and hash."""
        return [
            {"ref": _ref_of(upstream.name, held), "server": upstream.name, **held.to_json(), "problems": found}
            for upstream in self._upstreams(place)
            for held in self._pins.held(upstream.identity)
            for found in [[problem.to_json() for problem in self._findings(place, upstream, held)]]
        ]

    def is_held(self, place: ProjectPath, ref: ToolRef) -> bool:
        """Return whether a tool is held back."""
        source = self._catalog.at(_name(place)).sources.get(ref.server)
        return isinstance(source, PinnedSource) and source.holds(ref.tool)

    def _findings(self, place: ProjectPath, upstream: IntakeSource, held: HeldChange) -> tuple[Problem, ...]:
        """Return the lint findings in a held definition."""
        if held.kind != "tool":
            return lint_text(held.held.definition)
        others = self._others(place)
        offered = upstream.tools()
        tool = next((each for each in offered if each.ref.tool == held.pin.tool), None)
        if tool is None:
            return lint_text(held.held.definition)
        alike = clashes((each.ref for each in offered), others.looks)
        return reviewing(others.names, alike)(tool, held.change)

    async def accept(self, place: ProjectPath, ref: ToolRef, hash: str, by: Principal, kind: PinKind = "tool") -> None:
        """Accept a definition that a person has reviewed."""
        await self._pins.accept(self._find(place, ref).identity, ref.tool, hash, by=by, kind=kind)
        await self._again(place)

    async def reject(self, place: ProjectPath, ref: ToolRef, hash: str, by: Principal, kind: PinKind = "tool") -> None:
        """Reject a definition that a person has reviewed."""
        await self._pins.reject(self._find(place, ref).identity, ref.tool, hash, by=by, kind=kind)
        await self._again(place)

    async def reload(self) -> None:
        """Judge servers again whose pins were changed by another node. Raises `Unavailable`."""
        changed = await self._pins.reload()
        for place in [*self._shown] if changed else ():
            affected = [each for each in self._upstreams(place) if _has_pins_in(changed, each.identity)]
            for each in affected:
                if (taken := self._taken.get(id(each))) is not None:
                    self._taken[id(each)] = replace(taken, judgement=UNJUDGED)
            if affected:
                await self.take(place)

    def _find(self, place: ProjectPath, ref: ToolRef) -> IntakeSource:
        server = self._catalog.at(_name(place)).server(ref.server)
        for upstream in self._upstreams(place):
            if upstream.name == server:
                return upstream
        raise NotFound("server.unknown", f'Server "{ref.server}" not found.')

    async def _again(self, place: ProjectPath) -> None:
        self._judgement += 1
        for each in {None, place}:
            await self.take(each)


def _pin_source(upstream: IntakeSource, tools: Sequence[Tool], verdict: _Verdict) -> PinnedSource:
    held = (each.tool.ref.tool for each in verdict.seen if not each.usable)
    return PinnedSource(upstream, tools, notes(verdict.seen), held, verdict.content)


def _has_pins_in(places: Set[str], identity: str) -> bool:
    return any(pin_place(identity, kind) in places for kind in PIN_KINDS)


def _encode(tool: Tool) -> Tool:
    """Encode a tool in advance, so that the first listing does not wait for it."""
    _ = tool.encoded
    return tool


def _ref_of(server: str, held: HeldChange) -> str:
    """Return the name of a change: for instructions, that of the server itself."""
    return server if held.kind == "instructions" else str(ToolRef(server, held.pin.tool))


def _name(place: ProjectPath) -> str | None:
    return str(place) if place is not None else None


def _unjudged_problem(upstream: IntakeSource, error: Exception) -> Problem:
    message = f"The tools of server {upstream.name!r} are left out: they could not be compared with what was pinned."
    if isinstance(error, ToolcribError):
        return Problem(error.code, message, error.hint)
    return Problem("internal", message, "The log says why.")
