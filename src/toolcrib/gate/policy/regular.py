"""Regular expressions with bounded cost: matched in linear time, within a fixed amount of work.

Python's own `re` may take exponential time on texts that an attacker chooses, and cannot be interrupted. Conditions of
rules are tested on such texts, so they use the linear-time engine of `pydantic_core`. An expression is parsed here
first: constructs that the engine reads differently from `re` are rewritten, and those that are not regular
(look-around, back-references, inner anchors) are rejected when a rule is written. `.` matches any character, including
line breaks. The whole text must match, so a leading `^` and a trailing `$` are redundant.

For each character of the text, the engine's work is at most the size of the expression. A text is matched only if both
together stay within a budget, so that no match takes 50 ms. Must never exceed it: the result is undetermined instead.
Linear time alone is not enough: on 60,000 characters `(.*\\w){100}` takes 219 ms in this engine and 228 ms in RE2. The
parser also measures the size, which the engine does not report. RE2 reports it, but its `\\w` matches ASCII only.
"""

import string
from functools import lru_cache
from typing import Final, NamedTuple

from pydantic_core import SchemaError, SchemaValidator, core_schema

LONGEST_TEXT = 65_536
LONGEST_EXPRESSION = 1_000
MOST_STATES = 500
DEEPEST = 50
LARGEST = 2_000
"""Maximum size of an expression."""
MOST_CLASSES = 20
"""Maximum number of classes such as `\\w` for non-ASCII texts: each takes milliseconds to prepare."""
BUDGET = 1_600_000
UNICODE_BUDGET = 6_000_000
"""Maximum size of an expression times the bytes of a text.

The first applies to ASCII texts, the second to others, where sizes are estimated higher. Measured, either takes less
than 40 ms.
"""

_ASCII: Final = r"\x00-\x7F"
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\x0B\f\r "}
"""Character classes in ASCII texts."""
_CLASS_SIZE: Final = 8
"""The estimated size of such a class in other texts, per character."""
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_PLAIN: Final = frozenset(string.ascii_letters + string.digits)


class PatternPart(NamedTuple):
    """A part of an expression in the engine's syntax, for ASCII (`plain`) texts and all others, with sizes."""

    plain: str
    plain_size: int
    unicode: str
    unicode_size: int
    classes: int = 0


class NotRegular(ValueError):
    """Raised for an expression that the engine does not support. The message has the reason and position."""


class _Parser:
    """Parses an expression."""

    def __init__(self, text: str) -> None:
        self.ignore_case = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)").removeprefix("^")
        self._at = 0
        self._depth = 0

    def parse(self) -> PatternPart:
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("unmatched `)`")
        return node

    def _error(self, problem: str) -> NotRegular:
        return NotRegular(f"{problem} at position {self._at + 1}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("unexpected end")
        self._at += 1
        return character

    def _choice(self) -> PatternPart:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return _join("|", branches)

    def _sequence(self) -> PatternPart:
        parts: list[PatternPart] = []
        while self._peek() not in ("", "|", ")"):
            if self._text[self._at :] == "$":
                self._at += 1
                break
            parts.append(self._repetition(self._atom()))
        return _join("", parts)

    def _repetition(self, part: PatternPart) -> PatternPart:
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._peek() == "?":  # greediness does not matter if the whole text must match
            self._at += 1
        if self._peek() in ("*", "+", "?", "{"):
            raise self._error("repeated quantifier")
        least, most = bounds
        written = f"{{{least},{'' if most is None else most}}}"
        times = max(least + 1 if most is None else most, 1)
        plain, unicode = f"(?:{part.plain}){written}", f"(?:{part.unicode}){written}"
        return PatternPart(plain, part.plain_size * times, unicode, part.unicode_size * times, part.classes * times)

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
            raise self._error("`{` does not start a repetition (write `\\{`)")
        self._at += len(inside) + 2
        least, most = int(low[:9]), int((high if comma else low)[:9] or -1)
        if comma and not high:
            return least, None
        if most < least or most > MOST_STATES:
            raise self._error("invalid repetition bounds")
        return least, most

    def _atom(self) -> PatternPart:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == ".":
            return PatternPart(f"[{_ASCII}]", 1, "(?s:.)", 4)
        if character == "\\":
            found = self._escape()
            return _single(found) if isinstance(found, _Class) else _literal(found)
        if character in "*+?{^$":
            self._at -= 1
            raise self._error(f"misplaced `{character}`")
        return _literal(character)

    def _group(self) -> PatternPart:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._error("unsupported group")
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error("groups nested too deeply")
        part = self._choice()
        self._depth -= 1
        if self._peek() != ")":
            raise self._error("unclosed `(`")
        self._at += 1
        return part._replace(plain=f"(?:{part.plain})", unicode=f"(?:{part.unicode})")

    def _escape(self) -> "_Class | str":
        """Return a character class, or one plain character."""
        character = self._next()
        if character.lower() in _CLASSES:
            return _Class(character)
        if character.isalnum() and character not in _CONTROLS:
            raise self._error(f"unsupported escape `\\{character}`")
        return _CONTROLS.get(character, character)

    def _class(self) -> PatternPart:
        inverted = self._peek() == "^"
        self._at += inverted
        members: list[PatternPart] = []
        while self._peek() != "]" or not members:
            members.append(self._member())
        self._at += 1
        plain, _, unicode, unicode_size, classes = _join("", members)
        sign = "^" if inverted else ""
        return PatternPart(f"[[{sign}{plain}]&&[{_ASCII}]]", 1, f"[{sign}{unicode}]", 2 + unicode_size, classes)

    def _member(self) -> PatternPart:
        first = self._class_character()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] == "]":
            return _single(first) if isinstance(first, _Class) else _literal(first)
        if isinstance(first, _Class):
            raise self._error("invalid range")
        self._at += 1
        last = self._class_character()
        if isinstance(last, _Class) or last < first:
            raise self._error("invalid range")
        written = f"{_escape_character(first)}-{_escape_character(last)}"
        return PatternPart(written, 1, written, 4)

    def _class_character(self) -> "_Class | str":
        character = self._next()
        return self._escape() if character == "\\" else character


class _Class(NamedTuple):
    """A class such as `\\d`, by its letter. A capital letter is the inverse."""

    letter: str


def _single(each: _Class) -> PatternPart:
    small = each.letter.lower()
    sign = "^" if each.letter != small else ""
    return PatternPart(f"[{sign}{_CLASSES[small]}]", 1, f"\\{each.letter}", _CLASS_SIZE, 1)


def _literal(character: str) -> PatternPart:
    written = _escape_character(character)
    return PatternPart(written, 1, written, 1 if character.isascii() else 3)


def _escape_character(character: str) -> str:
    return character if character in _PLAIN else f"\\x{{{ord(character):X}}}"


def _join(sign: str, parts: list[PatternPart]) -> PatternPart:
    return PatternPart(
        sign.join(each.plain for each in parts),
        sum(each.plain_size for each in parts),
        sign.join(each.unicode for each in parts),
        sum(each.unicode_size for each in parts),
        sum(each.classes for each in parts),
    )


class Regular:
    """A compiled expression. Raises `NotRegular` for an unsupported or too large one."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_EXPRESSION:
            raise NotRegular(f"longer than {LONGEST_EXPRESSION} characters")
        parser = _Parser(text)
        self._part = parser.parse()
        self._flags = "(?i)" if parser.ignore_case else ""
        if self._part.plain_size > LARGEST:
            raise NotRegular("the expression is too large")
        self._plain = _compile(self._flags, self._part.plain)
        self._unicode: SchemaValidator | None = None

    def matches(self, text: str, other_length: int = 0) -> bool | None:
        """Return whether the whole text matches, or None if that exceeds the limits.

        `other_length` is the UTF-8 length of other texts that share this text's budget.
        """
        if len(text) > LONGEST_TEXT:
            return None
        if text.isascii():
            is_affordable = self._part.plain_size * (len(text) + other_length) <= BUDGET
            return self._plain.isinstance_python(text) if is_affordable else None
        size = self._part.unicode_size
        try:
            length = len(text.encode()) + other_length
        except UnicodeEncodeError:  # half a surrogate pair, which the engine does not accept as text
            return None
        if self._part.classes > MOST_CLASSES or size * length > UNICODE_BUDGET:
            return None
        if self._unicode is None:
            self._unicode = _compile(self._flags, self._part.unicode)
        return self._unicode.isinstance_python(text)


def _compile(flags: str, expression: str) -> SchemaValidator:
    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=rf"{flags}\A(?:{expression})\z", regex_engine="rust-regex")
        )
    except SchemaError as error:
        raise NotRegular("the expression is too large") from error


@lru_cache(maxsize=1024)
def regular(text: str) -> Regular:
    """Return the compiled form of an expression, cached. Raises `NotRegular`."""
    return Regular(text)
