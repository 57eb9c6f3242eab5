"""Pins: the definition of an upstream server that is in effect, and those held back for a person's review.

The first definition seen is in effect from then on. One that only adds optional arguments replaces it with a note, and
a new tool of a known server is pinned, unless the review of the new text has findings. Any other change is held: the
tool is neither listed nor called until a person accepts it, or the server returns to its earlier definition. A rejected
definition stays held without another request. An acceptance never carries over to another text.

Pins belong to the identity of a server: renaming it changes nothing, and another server under an old name starts anew.
All of them are in memory, so looking one up is free.

Nodes on one database share the pins, and each has its own connections. A definition that one node holds back holds the
tool on all of them, unless a person accepted the very definition that the other node sees. Only the node that saw the
held definition can see that the server returned to its earlier one.

Must never let a definition pass because it could not be compared, reviewed or stored.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

import anyio

from toolcrib.base.cooperative import Pacer
from toolcrib.gate.pins.definition_changes import DefinitionChange, compare
from toolcrib.gate.pins.lint import holding, lint, lint_addition
from toolcrib.model.errors import Conflict, Denied, NotFound, Unavailable
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.pins import PIN_KINDS, HeldDefinition, Pin, PinKind, kind_of_place, pin_place
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tools import ContentItem, Tool
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.pins import load_pins, save_pins
from toolcrib.store.policy_epoch import load_policy_epoch

PinState = Literal["first", "new", "same", "widened", "held"]
"""`new` is the first definition of a tool whose server was known before."""
Defined = TypeVar("Defined", Tool, ContentItem)
Review = Callable[[Defined, DefinitionChange], tuple[Problem, ...]]
"""Returns the problems with the text that a change adds. The change is `new`, `widening` or `other`."""
_TRIES = 5
_TOGETHER = 50
"""Number of tools judged and pinned in one step."""
_SAME = DefinitionChange("same")


def review_tool(tool: Tool, change: DefinitionChange) -> tuple[Problem, ...]:
    """Review a tool on its own, without regard to others."""
    return lint_addition(tool.ref, change.added()) if change.kind == "widening" else holding(lint(tool))


@dataclass(frozen=True, slots=True)
class Sighting(Generic[Defined]):
    """The judgement on a tool or other item: its standing, its difference from the pin, and why it is held."""

    tool: Defined
    state: PinState
    change: DefinitionChange
    findings: tuple[Problem, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether the tool may be listed and called with its current definition."""
        return self.state != "held"

    @property
    def note(self) -> str | None:
        """A note for people, if there is one."""
        ref = self.tool.ref
        if self.state == "new":
            return f"{ref} is new."
        if self.state == "widened":
            added = ", ".join(difference.name for difference in self.change.differences)
            return f"{ref} has new optional arguments: {added}."
        if self.state != "held":
            return None
        what = "is new" if self.change.kind == "new" else "changed"
        why = f": {self.findings[0].message}" if self.findings else "."
        return f"{ref} {what} and needs a person to accept it{why}"


@dataclass(frozen=True, slots=True)
class HeldChange:
    """A definition that waits for a person or was rejected, and its differences."""

    kind: PinKind
    pin: Pin
    held: HeldDefinition
    change: DefinitionChange

    def to_json(self) -> JsonObject:
        """Return the public JSON. `hash` identifies the definition to accept."""
        shape: JsonObject = {
            "what": self.kind,
            "tool": self.pin.tool,
            "hash": self.held.hash,
            "since": self.held.since.isoformat(),
        }
        rejected = {} if self.held.rejected_by is None else {"rejectedBy": self.held.rejected_by}
        return shape | rejected | self.change.to_json()


class Pins:
    """All pins of a crib. Call `load` first."""

    def __init__(self, store: Store, *, is_person: Callable[[Principal], bool]) -> None:
        self._store = store
        self._is_person = is_person
        self._pins: defaultdict[str, dict[str, Pin]] = defaultdict(dict)
        self._epoch = 0
        self._seen_here: set[str] = set()
        """Hashes of definitions that servers of this node offered and that were held."""
        self._lock = anyio.Lock()

    async def load(self, place: str | None = None) -> None:
        """Load all pins from the database, or those of one place."""
        pins = await load_pins(self._store, place)
        if place is None:
            self._pins.clear()
        else:
            self._pins[place] = {}
        for pin in pins:
            self._pins[pin.server][pin.tool] = pin

    async def reload(self) -> set[str]:
        """Load what other nodes changed. Returns the places (`pin_place`) with changes."""
        epoch = await load_policy_epoch(self._store, "pins")
        if epoch <= self._epoch:
            return set()
        async with self._lock:
            before, found = self._pins, defaultdict[str, dict[str, Pin]](dict)
            for pin in await load_pins(self._store):
                known = before.get(pin.server, {}).get(pin.tool)
                found[pin.server][pin.tool] = known if known is not None and known == pin else pin
            self._pins, self._epoch = found, epoch
            return {place for place in before.keys() | found.keys() if before.get(place, {}) != found.get(place, {})}

    def knows(self, server: str, kind: PinKind = "tool") -> bool:
        """Return whether anything of this kind was seen before. Instructions are always seen, even empty ones."""
        return bool(self._pins.get(pin_place(server, kind)) or self._pins.get(pin_place(server, "instructions")))

    async def see(
        self, server: str, tools: Sequence[Tool], review: Review[Tool] = review_tool, *, is_again: bool = False
    ) -> list[Sighting[Tool]]:
        """Judge the tools that a server offers now, in order. New and widened ones are pinned durably.

        With `is_again`, the same offer was judged before, perhaps by other pins. Nothing new is held then.
        Large lists are pinned in steps. After an interruption, pinned tools stay pinned, none has been used yet, and
        the rest is pinned the next time. Raises `Unavailable` if something could not be stored; then none of the tools
        may be used.
        """
        async with self._lock:
            known = self.knows(server)
            return await self._see_all(self._look(server, known, review, is_again=is_again), tools)

    async def see_content(
        self,
        server: str,
        kind: PinKind,
        items: Sequence[ContentItem],
        review: Review[ContentItem],
        *,
        known: bool,
        is_again: bool = False,
    ) -> list[Sighting[ContentItem]]:
        """Judge prompts, resources, templates or instructions. `known` means that the server was seen before.

        Resources are data and change often: text without findings passes without a pin.
        """
        async with self._lock:
            place = pin_place(server, kind)
            look = self._look(place, known, review, loose=kind == "resource", is_again=is_again)
            return await self._see_all(look, items)

    def _look(
        self, place: str, known: bool, review: Review[Defined], *, loose: bool = False, is_again: bool
    ) -> "_Look[Defined]":
        return _Look(place, known, review, loose, is_again, self._seen_here, self._store.shared)

    async def _see_all(self, look: "_Look[Defined]", items: Sequence[Defined]) -> list[Sighting[Defined]]:
        seen: list[Sighting[Defined]] = []
        firsts: dict[str, Defined] = {}
        pace = Pacer()
        for start in range(0, len(items), _TOGETHER):
            seen += await self._see(look, items[start : start + _TOGETHER], firsts)
            await pace.pause()
        return seen

    async def _see(
        self, look: "_Look[Defined]", items: Sequence[Defined], firsts: dict[str, Defined]
    ) -> list[Sighting[Defined]]:
        """Judge and pin some items. `firsts` has those seen so far: of two items with one name, the first counts."""
        for _ in range(_TRIES):
            seen, new, changed = self._review(look, items, firsts)
            try:
                kept = await save_pins(self._store, new, changed)
            except ConstraintError:
                kept = False
            if kept:
                for pin in (*new, *(pin for _, pin in changed)):
                    self._pins[look.place][pin.tool] = pin
                return seen
            await self.load(look.place)  # another crib on the same database was first
        raise Unavailable("database.unavailable", "Tool definitions change faster than they can be stored.")

    def _review(
        self, look: "_Look[Defined]", items: Sequence[Defined], firsts: dict[str, Defined]
    ) -> tuple[list[Sighting[Defined]], list[Pin], list[tuple[Pin, Pin]]]:
        now = datetime.now(UTC)
        known = self._pins.get(look.place, {})
        seen: list[Sighting[Defined]] = []
        new: dict[str, Pin] = {}
        changed: list[tuple[Pin, Pin]] = []
        for item in items:
            name = item.ref.tool
            counts = firsts.setdefault(name, item) is item
            pin = known.get(name) or new.get(name)
            if pin is None:
                found, first = look.first(item, now)
                seen.append(found)
                if first is not None:
                    new[name] = first
                continue
            found, after = look.again(pin, item, now)
            seen.append(found)
            if after is pin or not counts or (look.is_again and not found.usable):
                continue
            if after != pin:
                changed.append((pin, after))
            else:
                known[name] = after  # keep the current object, which needs no comparison next time
        return seen, list(new.values()), changed

    def pin(self, server: str, tool: str, kind: PinKind = "tool") -> Pin | None:
        """Return the pin of a tool or other item, or None."""
        return self._pins.get(pin_place(server, kind), {}).get(tool)

    def is_accepted(self, server: str, tool: Tool) -> bool:
        """Return whether a person accepted exactly this definition. Until then its own hints are ignored."""
        pin = self.pin(server, tool.ref.tool)
        if pin is None or pin.accepted_by is None:
            return False
        return compare(pin.definition, tool.definition).kind == "same"

    def held(self, server: str | None = None) -> list[HeldChange]:
        """Return what is held back, of all servers or of one, including rejected definitions."""
        places = list(self._pins) if server is None else [pin_place(server, kind) for kind in PIN_KINDS]
        return [
            HeldChange(kind_of_place(place), pin, pin.held, compare(pin.definition, pin.held.definition))
            for place in places
            for pin in self._pins.get(place, {}).values()
            if pin.held is not None
        ]

    async def accept(self, server: str, tool: str, hash: str, *, by: Principal, kind: PinKind = "tool") -> Pin:
        """Accept a definition that a person has reviewed: the held one with this hash, or the pinned one itself.

        Raises `Conflict` (`request.stale`) if the definition has changed since.
        """
        async with self._lock:
            pin = self._get_pin(server, tool, kind, by)
            if pin.held is not None and pin.held.hash == hash:
                accepted = Pin(pin.server, tool, hash, pin.held.definition, datetime.now(UTC), by.name)
            elif pin.counts and pin.hash == hash:
                accepted = replace(pin, accepted_by=by.name)
            else:
                raise _stale(tool)
            return await self._replace(pin, accepted)

    async def reject(self, server: str, tool: str, hash: str, *, by: Principal, kind: PinKind = "tool") -> Pin:
        """Reject the held definition with this hash. The tool stays out until its server offers something else."""
        async with self._lock:
            pin = self._get_pin(server, tool, kind, by)
            if pin.held is None or pin.held.hash != hash:
                raise _stale(tool)
            return await self._replace(pin, replace(pin, held=replace(pin.held, rejected_by=by.name)))

    def _get_pin(self, server: str, tool: str, kind: PinKind, by: Principal) -> Pin:
        if self._is_person(by) is not True:
            raise Denied(
                "approval.not_a_person",
                f"{by.name} ({by.source}) cannot accept or reject definitions. Only a person can.",
            )
        pin = self.pin(server, tool, kind)
        if pin is None:
            raise NotFound("pin.unknown", f"No definition of {tool!r} is known.")
        return pin

    async def _replace(self, pin: Pin, after: Pin) -> Pin:
        if not await save_pins(self._store, (), [(pin, after)]):
            await self.load(pin.server)
            raise _stale(pin.tool)
        self._pins[pin.server][pin.tool] = after
        return after


@dataclass(frozen=True, slots=True)
class _Look(Generic[Defined]):
    """One look at what a server offers of one kind: where its pins are, whether it is known, and the review.

    A `loose` look pins only items with findings. `seen_here` has the hashes of held definitions that this node saw.
    """

    place: str
    known: bool
    review: Review[Defined]
    loose: bool
    is_again: bool
    seen_here: set[str]
    is_shared: bool

    def first(self, item: Defined, now: datetime) -> tuple[Sighting[Defined], Pin | None]:
        """Judge an item without a pin. Returns the result and its new pin."""
        name, definition = item.ref.tool, item.definition
        if not self.known:
            findings = self.review(item, DefinitionChange("new")) if self.loose else ()
            pin = Pin(self.place, name, digest(definition), definition, now)
            return Sighting(item, "first", DefinitionChange("first")), pin if findings or not self.loose else None
        change = compare({}, definition)
        findings = self.review(item, change)
        if findings:
            held = HeldDefinition(digest(definition), definition, now)
            self.seen_here.add(held.hash)
            return Sighting(item, "held", change, findings), Pin(self.place, name, "", {}, now, held=held)
        pin = None if self.loose else Pin(self.place, name, digest(definition), definition, now)
        return Sighting(item, "new", change), pin

    def again(self, pin: Pin, item: Defined, now: datetime) -> tuple[Sighting[Defined], Pin]:
        """Judge an item with a pin. Returns the result and the pin afterwards."""
        if pin.definition is item.definition and pin.held is None:
            return Sighting(item, "same", _SAME), pin
        change = compare(pin.definition, item.definition)
        if pin.held is not None and self._is_held_elsewhere(pin, pin.held, change):
            return Sighting(item, "held", compare(pin.definition, pin.held.definition)), pin
        if change.kind == "same" and pin.counts and pin.held is not None and not self._may_end(pin.held):
            return Sighting(item, "same", change), pin
        if change.kind == "same" and pin.counts:
            self.seen_here.discard(pin.held.hash if pin.held is not None else "")
            return Sighting(item, "same", change), replace(pin, definition=item.definition, held=None)
        hash = digest(item.definition)
        findings = self.review(item, change)
        if not findings and (self.loose or change.kind == "widening" or not pin.counts):
            # No person has accepted this text, so the acceptance of the narrower one ends here.
            standing: PinState = "new" if not pin.counts else "widened"
            return Sighting(item, standing, change), Pin(pin.server, pin.tool, hash, item.definition, now)
        self.seen_here.add(hash)
        if pin.held is not None and pin.held.hash == hash:
            return Sighting(item, "held", change, findings), pin
        return Sighting(item, "held", change, findings), replace(pin, held=HeldDefinition(hash, item.definition, now))

    def _is_held_elsewhere(self, pin: Pin, held: HeldDefinition, change: DefinitionChange) -> bool:
        """Return whether another node holds a definition back that this one has not seen, and no person decided."""
        is_accepted = change.kind == "same" and pin.accepted_by is not None
        return not is_accepted and held.rejected_by is None and pin.counts and not self._may_end(held)

    def _may_end(self, held: HeldDefinition) -> bool:
        """Return whether this node can see that the server no longer offers a held definition."""
        return not self.is_shared or held.hash in self.seen_here


def _stale(tool: str) -> Conflict:
    return Conflict("request.stale", f"The definition of {tool!r} was changed again after you reviewed it.")
