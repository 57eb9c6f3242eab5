"""Collects the texts of a definition, each with its location and the forms in which it is read, and makes findings.

Every string of a definition reaches a model, including the names of members.

A finding is a problem with its exact location and a severity: `hold` keeps new text of a known server back until a
person has reviewed it; `warn` is a note and holds nothing.

Pure. Must never read more than the limits; what is left out becomes `UNREAD`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolcrib.gate.pins.lint_signs import Severity
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.look_alikes import readable
from toolcrib.model.problems import Problem
from toolcrib.model.text import visible

TextPath = tuple["TextPath", str | int] | None
"""The location of a text: its parent location, and its name or index there."""


class Text(NamedTuple):
    """A text of a definition: the name of a member, a value, or (`is_joined`) all values of a list."""

    place: TextPath
    text: str
    is_name: bool = False
    is_joined: bool = False


UNREAD: Final = Text(None, "")
"""Represents texts that are too many or too deep to be checked."""
LONGEST: Final = 64 * 1024
"""Characters checked in each text."""
_MOST_TEXTS = 2000
_DEEPEST = 64
_JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_KEYWORDS = frozenset(
    {
        *("type", "description", "title", "properties", "required", "items", "enum", "default", "additionalProperties"),
        *("inputSchema", "outputSchema", "annotations", "$schema", "minimum", "maximum", "minLength", "maxLength"),
        *("anyOf", "allOf", "oneOf", "format", "name", "examples", "minItems", "maxItems", "readOnlyHint", "pattern"),
        *("destructiveHint", "idempotentHint", "openWorldHint", "$ref", "$defs", "const", "execution", "taskSupport"),
    }
)
"""Names that almost every definition contains."""
_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_-]+")
_PROSE = re.compile(r"[^\W\d_]{2,} [^\W\d_]{2,} [^\W\d_]{2,}")
_SCHEMA = re.compile(r"https?://json-schema\.org/[\w/.-]{1,60}#?")


def texts_of(definition: JsonObject) -> list[Text]:
    """Return the texts of a definition."""
    texts: list[Text] = []
    _gather(None, definition, 0, texts)
    return texts


def _gather(place: TextPath, value: Json, depth: int, texts: list[Text]) -> None:
    if isinstance(value, str):
        if value not in _JSON_TYPES:
            texts.append(Text(place, value[:LONGEST]))
        return
    members: Iterable[tuple[str | int, Json]] = ()
    if is_object(value):
        members = value.items()
    elif is_array(value):
        members = enumerate(value)
        if len(value) > 1 and all(isinstance(item, str) for item in value):  # may be parts of one sentence
            texts.append(Text(place, " ".join(value)[:LONGEST], is_joined=True))
    for name, item in members:
        if len(texts) >= _MOST_TEXTS or depth >= _DEEPEST:
            texts.append(UNREAD)
            return
        below = (place, name)
        if isinstance(name, str) and name not in _KEYWORDS:
            texts.append(Text(below, name[:LONGEST], is_name=True))
        _gather(below, item, depth + 1, texts)


def plain_form(each: Text) -> str:
    """Return the plain form of a text: joined lines, split words, resolved look-alikes."""
    plain = each.text if each.text.isascii() else readable(each.text)
    if each.is_name or _is_tool_name(each):
        return _WORD_BOUNDARY.sub(" ", plain)
    if "\n" in plain:
        return "\n".join(" ".join(paragraph.split()) for paragraph in _PARAGRAPHS.split(plain))
    return plain


def _is_tool_name(each: Text) -> bool:
    return each.place == (None, "name")


def forms(each: Text) -> str:
    """Return the text and, if it differs, its plain form."""
    plain = plain_form(each)
    return each.text if plain == each.text else f"{each.text}\n\n{plain}"


def is_for_programs(each: Text) -> bool:
    """Return whether a text belongs to the schema's own syntax and has no room for prose."""
    keyword = each.place[1] if each.place is not None and not each.is_name else None
    if keyword == "pattern":
        return _PROSE.search(each.text) is None
    if keyword in ("$ref", "$dynamicRef"):
        return each.text.startswith("#") and " " not in each.text
    return keyword == "$schema" and _SCHEMA.fullmatch(each.text) is not None


def written(place: TextPath) -> str:
    """Return a location as a path."""
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(str(name))
    return "/".join(reversed(names))


_EXCERPT = 80


@dataclass(frozen=True, slots=True)
class LintFinding(Problem):
    """A problem in the text at `place`, a path in the definition, from character `start` to `end`."""

    place: str = ""
    start: int = 0
    end: int = 0
    severity: Severity = "hold"

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"place": self.place, "start": self.start, "end": self.end, "severity": self.severity}
        return Problem.to_json(self) | shape


def finding(
    code: str, place: TextPath, reason: str, shown: str, span: tuple[int, int], severity: Severity = "hold"
) -> LintFinding:
    """Return a finding. Its message has the place, the reason and an excerpt of `shown`."""
    path = _excerpt(written(place))
    return LintFinding(
        code,
        f"{path} {reason}: {_excerpt(shown)}".lstrip(),
        place=path,
        start=span[0],
        end=span[1],
        severity=severity,
    )


def holding(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the findings that hold new text back."""
    return tuple([each for each in problems if not isinstance(each, LintFinding) or each.severity == "hold"])


def one_of_each(findings: Iterable[LintFinding]) -> tuple[LintFinding, ...]:
    """Return one finding of each code: the first, or the first that holds."""
    chosen: dict[str, LintFinding] = {}
    for each in findings:
        before = chosen.get(each.code)
        if before is None or (before.severity == "warn" and each.severity == "hold"):
            chosen[each.code] = each
    return tuple(chosen.values())


def _excerpt(text: str) -> str:
    shown = visible(" ".join(text[: 4 * _EXCERPT].split()))
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
