"""Pins: which definition of an upstream tool counts, and which is held back until a person has looked at it.

The first definition that is seen counts from then on. One that only adds optional arguments takes its place, with a
note. Any other is held: the tool is neither listed nor called until a person accepts it, or the server goes back to
what it said before. A rejected definition stays held, without asking again.

Pins hang on the identity of a server, so that a new name for it changes nothing and another server under an old name
starts anew. All of them are in memory, so that what a caller asks of one tool costs nothing.

Above: the catalog takes its upstream tools through `see`; the doors accept and reject. Below: `changes`, the store. It
must never let a definition pass because it could not be compared or kept.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import anyio

from toolcrib.errors import Conflict, Denied, NotFound, Unavailable
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.pins import Held, Pin
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool
from toolcrib.pace import Pace
from toolcrib.policy.changes import Change, compare
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.pins import load_pins, save_pins

Standing = Literal["first", "new", "same", "widened", "held"]
"""`new` is a first definition of a tool whose server was known before."""
_TRIES = 5
_TOGETHER = 50
"""So many tools are judged and pinned in one step."""
_SAME = Change("same")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of a tool: where it stands, and how it differs from what was pinned when it was seen."""

    tool: Tool
    standing: Standing
    change: Change

    @property
    def usable(self) -> bool:
        """Whether the tool may be listed and called as it is defined now."""
        return self.standing != "held"

    @property
    def note(self) -> str | None:
        """What a person may want to know of it."""
        if self.standing == "new":
            return f"{self.tool.ref} is new."
        if self.standing == "widened":
            added = ", ".join(difference.name for difference in self.change.differences)
            return f"{self.tool.ref} takes more arguments now: {added}."
        if self.standing == "held":
            return f"{self.tool.ref} is defined differently now and waits for a person to accept it."
        return None


@dataclass(frozen=True, slots=True)
class HeldChange:
    """A definition that waits for a person, or that one has rejected, and how it differs."""

    pin: Pin
    held: Held
    change: Change

    def to_json(self) -> JsonObject:
        """The public shape; `hash` names the definition that is to be accepted."""
        shape: JsonObject = {"tool": self.pin.tool, "hash": self.held.hash, "since": self.held.since.isoformat()}
        rejected = {} if self.held.rejected_by is None else {"rejectedBy": self.held.rejected_by}
        return shape | rejected | self.change.to_json()


class Pins:
    """All pins of a crib. `load` first."""

    def __init__(self, store: Store, *, is_person: Callable[[Principal], bool]) -> None:
        self._store = store
        self._is_person = is_person
        self._pins: defaultdict[str, dict[str, Pin]] = defaultdict(dict)
        self._lock = anyio.Lock()

    async def load(self, server: str | None = None) -> None:
        """Take up what the database has, of all servers or of one."""
        pins = await load_pins(self._store, server)
        if server is None:
            self._pins.clear()
        else:
            self._pins[server] = {}
        for pin in pins:
            self._pins[pin.server][pin.tool] = pin

    async def see(self, server: str, tools: Sequence[Tool]) -> list[Seen]:
        """Judge the tools that a server offers now, in their order; what is new or wider is pinned, durably.

        Some of them are pinned after the other. Should that break off, what was pinned is pinned, none of the tools
        was used yet, and the others are pinned the next time. Raises `Unavailable` where something could not be kept;
        then none of the tools may be used.
        """
        async with self._lock:
            standing: Standing = "new" if self._pins.get(server) else "first"
            seen: list[Seen] = []
            firsts: dict[str, Tool] = {}
            pace = Pace()
            for start in range(0, len(tools), _TOGETHER):
                seen += await self._see(server, tools[start : start + _TOGETHER], standing, firsts)
                await pace.pause()
            return seen

    async def _see(self, server: str, tools: Sequence[Tool], standing: Standing, firsts: dict[str, Tool]) -> list[Seen]:
        """Judge and pin some of a server's tools; `standing` is that of those without a pin.

        `firsts` are the tools that were seen by now, by name: of two of one name the first counts.
        """
        for _ in range(_TRIES):
            seen, new, changed = self._judge(server, tools, standing, firsts)
            try:
                kept = await save_pins(self._store, new, changed)
            except ConstraintError:
                kept = False
            if kept:
                for pin in (*new, *(pin for _, pin in changed)):
                    self._pins[server][pin.tool] = pin
                return seen
            await self.load(server)  # another crib on the same database was first
        raise Unavailable("database.unavailable", "Definitions of tools change faster than they can be kept.")

    def _judge(
        self, server: str, tools: Sequence[Tool], standing: Standing, firsts: dict[str, Tool]
    ) -> tuple[list[Seen], list[Pin], list[tuple[Pin, Pin]]]:
        now = datetime.now(UTC)
        known = self._pins.get(server, {})
        seen: list[Seen] = []
        new: dict[str, Pin] = {}
        changed: list[tuple[Pin, Pin]] = []
        for tool in tools:
            name = tool.ref.tool
            counts = firsts.setdefault(name, tool) is tool
            pin = known.get(name) or new.get(name)
            if pin is None:
                seen.append(Seen(tool, standing, Change("first")))
                new[name] = Pin(server, name, digest(tool.definition), tool.definition, now)
                continue
            found, after = _judged(pin, tool, now)
            seen.append(found)
            if after is pin or not counts:
                continue
            if after != pin:
                changed.append((pin, after))
            else:
                known[name] = after  # with the object that will be seen again, which need not be compared then
        return seen, list(new.values()), changed

    def pin(self, server: str, tool: str) -> Pin | None:
        """The pin of one tool."""
        return self._pins.get(server, {}).get(tool)

    def is_accepted(self, server: str, tool: Tool) -> bool:
        """Whether a person agreed to this very definition; until then its own hints count for nothing."""
        pin = self.pin(server, tool.ref.tool)
        if pin is None or pin.accepted_by is None:
            return False
        return compare(pin.definition, tool.definition).kind == "same"

    def held(self, server: str | None = None) -> list[HeldChange]:
        """What is held back, of all servers or of one, rejected definitions too."""
        servers = self._pins if server is None else {server: self._pins.get(server, {})}
        pins = (pin for tools in servers.values() for pin in tools.values())
        return [HeldChange(pin, pin.held, compare(pin.definition, pin.held.definition)) for pin in pins if pin.held]

    async def accept(self, server: str, tool: str, hash: str, *, by: Principal) -> Pin:
        """Let a definition count that a person has looked at: the held one of this hash, or the pinned one itself.

        Raises `Conflict` (`request.stale`) if the tool is defined in yet another way by now.
        """
        async with self._lock:
            pin = self._known(server, tool, by)
            if pin.held is not None and pin.held.hash == hash:
                accepted = Pin(server, tool, hash, pin.held.definition, datetime.now(UTC), by.name)
            elif pin.hash == hash:
                accepted = replace(pin, accepted_by=by.name)
            else:
                raise _stale(tool)
            return await self._replace(pin, accepted)

    async def reject(self, server: str, tool: str, hash: str, *, by: Principal) -> Pin:
        """Say no to the held definition of this hash; the tool stays out until its server offers something else."""
        async with self._lock:
            pin = self._known(server, tool, by)
            if pin.held is None or pin.held.hash != hash:
                raise _stale(tool)
            return await self._replace(pin, replace(pin, held=replace(pin.held, rejected_by=by.name)))

    def _known(self, server: str, tool: str, by: Principal) -> Pin:
        if self._is_person(by) is not True:
            raise Denied("approval.not_a_person", f"{by.name} ({by.source}) cannot judge definitions: a person has to.")
        pin = self.pin(server, tool)
        if pin is None:
            raise NotFound("pin.unknown", f"No definition of {tool!r} is known.")
        return pin

    async def _replace(self, pin: Pin, after: Pin) -> Pin:
        if not await save_pins(self._store, (), [(pin, after)]):
            await self.load(pin.server)
            raise _stale(pin.tool)
        self._pins[pin.server][pin.tool] = after
        return after


def _judged(pin: Pin, tool: Tool, now: datetime) -> tuple[Seen, Pin]:
    """Where a tool stands that has a pin, and the pin it has afterwards."""
    if pin.definition is tool.definition and pin.held is None:
        return Seen(tool, "same", _SAME), pin
    change = compare(pin.definition, tool.definition)
    if change.kind == "same":
        return Seen(tool, "same", change), replace(pin, definition=tool.definition, held=None)
    hash = digest(tool.definition)
    if change.kind == "widening":
        # A person agreed to the narrower one: hints they accepted are the same still, and so is their word.
        return Seen(tool, "widened", change), Pin(pin.server, pin.tool, hash, tool.definition, now, pin.accepted_by)
    if pin.held is not None and pin.held.hash == hash:
        return Seen(tool, "held", change), pin
    return Seen(tool, "held", change), replace(pin, held=Held(hash, tool.definition, now))


def _stale(tool: str) -> Conflict:
    return Conflict("request.stale", f"The definition of {tool!r} is not the one that was looked at any more.")
