"""Regular expressions that cannot run away: matched in time proportional to the text, within a fixed amount of work.

Python's own `re` may take exponential time on texts that an attacker chooses, and cannot be stopped. Conditions of
rules are tested on such texts, so they have their own small engine: the expression becomes an automaton, whose states
are worked out when they are first met. It knows what regular languages know: literals, `.`, classes, `\\d \\w \\s`,
groups, `|`, `* + ? {m,n}` and a leading `(?i)`; what it does not know (look-around, back-references, anchors inside) is
refused when a rule is written. `.` stands for any character, line breaks too; the whole text must match, so a leading
`^` and a trailing `$` say nothing new.

Above: `conditions`. Below: nothing. It must never take longer than its budget allows: then it gives no answer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

LONGEST_TEXT = 65_536
LONGEST_EXPRESSION = 1_000
MOST_STATES = 500
DEEPEST = 50
BUDGET = 200_000
"""Steps of the automaton that one text may cost; some 50 ms. Steps known from earlier are free."""
_MOST_KEPT = 10_000

Test: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Sequence:
    nodes: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class _Choice:
    nodes: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class _Repeat:
    node: "Node"
    least: int
    most: int | None


Node: TypeAlias = Test | _Sequence | _Choice | _Repeat
"""A test of one character, or a sequence, choice or repetition of nodes."""

_CLASSES: dict[str, Test] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class NotRegular(ValueError):
    """The expression is not one that this engine knows; the text says what and where."""


class _Parser:
    """Reads an expression into nodes."""

    def __init__(self, text: str) -> None:
        self.ignore_case = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)").removeprefix("^")
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("a `)` without its `(`")
        return node

    def _wrong(self, what: str) -> NotRegular:
        return NotRegular(f"{what} at position {self._at + 1}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._wrong("an end too early")
        self._at += 1
        return character

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._text[self._at :] == "$":
                self._at += 1
                break
            nodes.append(self._repeated(self._atom()))
        return _Sequence(tuple(nodes))

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if self._peek() == "?":  # how eagerly it repeats does not matter where the whole text must match
            self._at += 1
        if self._peek() in ("*", "+", "?", "{"):
            raise self._wrong("a repetition of a repetition")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if (bounds := simple.get(self._peek())) is not None:
            self._at += 1
            return bounds
        if self._peek() != "{":
            return None
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        numbers = [number for number in (low, high) if number]
        if not closed or not low or not all(number.isascii() and number.isdigit() for number in numbers):
            raise self._wrong("a `{` that is no repetition (write `\\{`)")
        self._at += len(inside) + 2
        least, most = int(low[:9]), int((high if comma else low)[:9] or -1)
        if comma and not high:
            return least, None
        if most < least or most > MOST_STATES:
            raise self._wrong("a repetition that cannot be")
        return least, most

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == ".":
            return lambda _: True
        if character == "\\":
            test, plain = self._escape()
            return test or self._one(plain)
        if character in "*+?{^$":
            self._at -= 1
            raise self._wrong(f"a `{character}` that has no meaning there")
        return self._one(character)

    def _group(self) -> Node:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._wrong("a group of a kind that is not known")
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong("a group in too many others")
        node = self._choice()
        self._depth -= 1
        if self._peek() != ")":
            raise self._wrong("a `(` without its `)`")
        self._at += 1
        return node

    def _escape(self) -> tuple[Test | None, str]:
        """A class of characters, or one plain character."""
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character], ""
        if character.lower() in _CLASSES:
            inverse = _CLASSES[character.lower()]
            return lambda each: not inverse(each), ""
        if character.isalnum() and character not in _CONTROLS:
            raise self._wrong(f"a `\\{character}` that is not known")
        return None, _CONTROLS.get(character, character)

    def _class(self) -> Node:
        inverted = self._peek() == "^"
        self._at += inverted
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            tests.append(self._member())
        self._at += 1

        def within(character: str) -> bool:
            return any(test(character) for test in tests) is not inverted

        return within

    def _member(self) -> Test:
        test, first = self._class_character()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] == "]":
            return test or self._one(first)
        if test is not None:
            raise self._wrong("a range that cannot be")
        self._at += 1
        test, last = self._class_character()
        if test is not None or last < first:
            raise self._wrong("a range that cannot be")
        return self._cased(lambda character: first <= character <= last)

    def _class_character(self) -> tuple[Test | None, str]:
        character = self._next()
        return self._escape() if character == "\\" else (None, character)

    def _one(self, wanted: str) -> Test:
        return self._cased(wanted.__eq__)

    def _cased(self, test: Test) -> Test:
        if not self.ignore_case:
            return test
        return lambda character: any(test(each) for each in {character, character.lower(), character.upper()})


class _State:
    """A set of places in the automaton, and where known characters lead from it."""

    __slots__ = ("accepts", "moves", "places")

    def __init__(self, places: frozenset[int], accepts: bool) -> None:
        self.places = places
        self.accepts = accepts
        self.moves: dict[str, _State] = {}


class Regular:
    """A compiled expression. Raises `NotRegular` for one that is not known or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_EXPRESSION:
            raise NotRegular(f"more than {LONGEST_EXPRESSION} characters")
        self._tests: list[Test | None] = []
        self._leads: list[list[int]] = []
        start, self._end = self._fragment(_Parser(text).parse())
        self._first = self._closure((start,))
        self._states: dict[frozenset[int], _State] = {}
        self._kept = 0

    def matches(self, text: str) -> bool | None:
        """Whether the whole text matches; None if that cannot be said within the limits."""
        if len(text) > LONGEST_TEXT:
            return None
        state = self._state(self._first)
        left = BUDGET
        for character in text:
            known = state.moves.get(character)
            if known is None:
                left -= len(state.places) + 1
                if left < 0:
                    return None
                known = self._move(state, character)
            if not known.places:
                return False
            state = known
        return state.accepts

    def _move(self, state: _State, character: str) -> _State:
        reached = self._closure(
            lead
            for place in state.places
            if (test := self._tests[place]) is not None and test(character)
            for lead in self._leads[place]
        )
        if self._kept >= _MOST_KEPT:
            self._states, self._kept = {}, 0
            state.moves.clear()
        self._kept += 1
        found = state.moves[character] = self._state(reached)
        return found

    def _state(self, places: frozenset[int]) -> _State:
        known = self._states.get(places)
        if known is None:
            known = self._states[places] = _State(places, self._end in places)
        return known

    def _closure(self, places: Iterable[int]) -> frozenset[int]:
        reached: set[int] = set()
        open_places = list(places)
        while open_places:
            place = open_places.pop()
            if place not in reached:
                reached.add(place)
                if self._tests[place] is None:
                    open_places.extend(self._leads[place])
        return frozenset(place for place in reached if self._tests[place] is not None or place == self._end)

    def _place(self, test: Test | None = None, *leads: int) -> int:
        if len(self._tests) >= MOST_STATES * 4:
            raise NotRegular("an expression that is too large")
        self._tests.append(test)
        self._leads.append(list(leads))
        return len(self._tests) - 1

    def _fragment(self, node: Node) -> tuple[int, int]:
        """Places for a node: where it begins and where it ends."""
        match node:
            case _Repeat(repeated, least, most):
                return self._repetition(repeated, least, most)
            case _Sequence(nodes):
                return self._chain([self._fragment(each) for each in nodes])
            case _Choice(nodes):
                branches = [self._fragment(each) for each in nodes]
                end = self._place()
                for _, branch_end in branches:
                    self._leads[branch_end].append(end)
                return self._place(None, *(start for start, _ in branches)), end
            case _:
                end = self._place()
                return self._place(node, end), end

    def _chain(self, fragments: list[tuple[int, int]]) -> tuple[int, int]:
        start = end = self._place()
        for each_start, each_end in fragments:
            self._leads[end].append(each_start)
            end = each_end
        return start, end

    def _repetition(self, node: Node, least: int, most: int | None) -> tuple[int, int]:
        fragments = [self._fragment(node) for _ in range(least)]
        if most is None:
            start, end = self._fragment(node)
            loop = self._place(None, start)
            self._leads[end].append(loop)
            out = self._place()
            self._leads[loop].append(out)
            fragments.append((loop, out))
        else:
            optional = [self._fragment(node) for _ in range(most - least)]
            entry = out = self._place()
            for start, end in reversed(optional):
                self._leads[end].append(entry)
                entry = self._place(None, start, out)
            fragments.append((entry, out))
        return self._chain(fragments)


@lru_cache(maxsize=1024)
def regular(text: str) -> Regular:
    """The compiled form of an expression, kept. Raises `NotRegular`."""
    return Regular(text)
