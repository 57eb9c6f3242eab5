"""Lints tool definitions: hidden characters, orders to the model, other tools, private data, look-alike names.

Descriptions reach the model, so they are how tools are poisoned. At first sight of a server a finding is a note for a
person. A finding in a new tool of a known server, or in any other new text, holds it back (`pins`). The absence of
findings proves nothing. `lint_addition` is stricter: an optional argument has no reason to be anything but plain.

Pure. Must never take longer than the length of the text warrants: every repetition in a pattern is bounded.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from toolcrib.gate.pins.lint_encoded import hidden_message, may_hide_message
from toolcrib.gate.pins.lint_plain import departure
from toolcrib.gate.pins.lint_signs import INSTRUCTS, PRIVATE, Sign
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.look_alikes import look, looks_foreign, readable
from toolcrib.model.problems import Problem
from toolcrib.model.text import count_hidden, is_odd_space, visible
from toolcrib.model.tools import Tool, ToolRef

_Place = tuple["_Place", str | int] | None
"""The location of a text: its parent location, and its name or index there."""


class _Text(NamedTuple):
    """A text of a definition: the name of a member, a value, or (`is_joined`) all values of a list."""

    place: _Place
    text: str
    is_name: bool = False
    is_joined: bool = False


Looks = Mapping[str, frozenset[ToolRef]]
"""Tools by the look of their names."""
_UNREAD = _Text(None, "")
"""Represents texts that are too many or too deep to be checked."""
NO_NAMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})
NO_LOOKS: Final[Looks] = MappingProxyType({})

FINDINGS: Final = frozenset(
    {
        "tool.hidden_characters",
        "tool.instructs",
        "tool.look_alike",
        "tool.names_other_tool",
        "tool.names_credentials",
        "tool.encoded_text",
        "tool.not_plain",
    }
)
"""The codes of all findings."""
ABOUT_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool.look_alike": "The name of the tool can be mistaken for another tool's; compare them letter by letter.",
        "tool.names_other_tool": "The definition speaks of another server's tool.",
    }
)
"""Replacement messages for findings that name tools of other servers, for readers who may not know these."""

_LONGEST = 64 * 1024
"""Characters checked in each text."""
_MOST_TEXTS = 2000
_DEEPEST = 64
_EXCERPT = 80
_SHORTEST_NAME = 5
"""Shorter names of other tools are treated as ordinary words."""
_LONGEST_BLANK = 80
_MOST_LINES = 12
"""A longer run of blank lines or spaces pushes the text after it out of sight."""

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
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_APART = bytes(byte if re.match(rb"[\w.-]", bytes((byte,))) else 32 for byte in range(256))
"""Maps every ASCII byte that cannot be part of a name to a space."""
_UNPLAIN = re.compile(r"[^\n\t\r -~]")
_PADDING = re.compile(rf"\s{{{_LONGEST_BLANK},}}|(?:\n[ \t]*){{{_MOST_LINES},}}")
_MUCH_BLANK = " " * 20
_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_-]+")
_PROSE = re.compile(r"[^\W\d_]{2,} [^\W\d_]{2,} [^\W\d_]{2,}")
_SCHEMA = re.compile(r"https?://json-schema\.org/[\w/.-]{1,60}#?")
_SPACES_OF_PROSE = "\u00a0\u202f\u3000"
_MOST_ODD_SPACES = 3
_MOST_ADDED = 2000
"""Maximum characters of all texts of added arguments together."""


def telling_names(refs: Iterable[ToolRef]) -> Mapping[str, frozenset[str]]:
    """Return the tool names that are not plain words, each with the servers that use it."""
    servers: defaultdict[str, set[str]] = defaultdict(set)
    for ref in refs:
        if _is_telling(ref.tool):
            servers[ref.tool].add(ref.server)
    return {name: frozenset(having) for name, having in servers.items()}


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and not (name.isalpha() and name[1:].islower())


def mentions(tool: Tool) -> frozenset[str]:
    """Return everything in a definition that could be the name of another tool."""
    texts = _texts({"name": tool.ref.tool, **tool.definition})
    return frozenset(filter(_is_telling, _names("\n".join([each.text for each in texts]))))


def looks_of(refs: Iterable[ToolRef]) -> Looks:
    """Return tools by the look of their names."""
    found: defaultdict[str, set[ToolRef]] = defaultdict(set)
    for ref in refs:
        found[look(ref.tool)].add(ref)
    found.pop("", None)
    return {each: frozenset(alike) for each, alike in found.items()}


def clashes(own: Iterable[ToolRef], others: Looks) -> Looks:
    """Return the looks that a server's tools share with a tool of another name, its own or one in `others`."""
    shared: dict[str, frozenset[ToolRef]] = {}
    for each, refs in looks_of(own).items():
        servers = {ref.server for ref in refs}
        alike = refs | {ref for ref in others.get(each, ()) if ref.server not in servers}
        if len({ref.tool for ref in alike}) > 1:
            shared[each] = alike
    return shared


def lint(tool: Tool, others: Mapping[str, frozenset[str]] = NO_NAMES, alike: Looks = NO_LOOKS) -> tuple[Problem, ...]:
    """Return at most one finding of each kind, with its location.

    `others` is the result of `telling_names`, `alike` that of `clashes`.
    """
    return (*lint_beside(tool, others, alike), *lint_alone(tool))


def lint_alone(tool: Tool) -> tuple[Problem, ...]:
    """Return the findings that depend on nothing but the definition."""
    return _lint_text(_texts({"name": tool.ref.tool, **tool.definition}))


def lint_beside(
    tool: Tool, others: Mapping[str, frozenset[str]] = NO_NAMES, alike: Looks = NO_LOOKS
) -> tuple[Problem, ...]:
    """Return the findings about the tools of other servers: a look-alike name, and a mention of one of them."""
    name = _look_alike(tool.ref, alike)
    texts = _texts({"name": tool.ref.tool, **tool.definition}) if others else ()
    mention = _other_tool(texts, tool.ref, others)
    return tuple([problem for problem in (name, mention) if problem is not None])


def lint_text(definition: JsonObject) -> tuple[Problem, ...]:
    """Return the findings in any definition whose text reaches a model: a prompt, a resource, instructions."""
    return _lint_text(_texts(definition))


def lint_addition(
    ref: ToolRef, added: Mapping[str, Json], others: Mapping[str, frozenset[str]] = NO_NAMES
) -> tuple[Problem, ...]:
    """Return the findings in optional arguments that were added to a tool, by name.

    Text that is longer or less plain than an argument needs is also a finding, because no list of signs is complete.
    """
    all_texts = _texts(dict(added))
    mention = _other_tool(all_texts, ref, others)
    found = _lint_text(all_texts)
    if found or mention is not None:
        return found if mention is None else (mention, *found)
    texts = [each for each in all_texts if not each.is_joined and not _is_for_programs(each)]
    for each in texts:
        reason = departure(each.text, is_name=each.is_name)
        if reason is not None:
            return (_problem("tool.not_plain", each.place, reason, each.text),)
    if sum(len(each.text) for each in texts) > _MOST_ADDED:
        return (_problem("tool.not_plain", None, "together have a long text", texts[0].text),)
    return ()


def _lint_text(texts: Sequence[_Text]) -> tuple[Problem, ...]:
    joined = "\n\n".join([_forms(each) for each in texts])
    folded = joined.casefold()
    found = (
        _hidden(texts),
        _first(texts, joined, folded, INSTRUCTS, "tool.instructs", "tells the model what to do"),
        _first(texts, joined, folded, PRIVATE, "tool.names_credentials", "speaks of secrets or private data"),
        _encoded(texts) if may_hide_message(joined) else None,
        _unread(texts),
    )
    return tuple([problem for problem in found if problem is not None])


def _texts(definition: JsonObject) -> list[_Text]:
    texts: list[_Text] = []
    _gather(None, definition, 0, texts)
    return texts


def _gather(place: _Place, value: Json, depth: int, texts: list[_Text]) -> None:
    """Collect the texts of a value. Every string reaches a model, including the names of members."""
    if isinstance(value, str):
        if value not in _JSON_TYPES:
            texts.append(_Text(place, value[:_LONGEST]))
        return
    members: Iterable[tuple[str | int, Json]] = ()
    if is_object(value):
        members = value.items()
    elif is_array(value):
        members = enumerate(value)
        if len(value) > 1 and all(isinstance(item, str) for item in value):  # may be parts of one sentence
            texts.append(_Text(place, " ".join(value)[:_LONGEST], is_joined=True))
    for name, item in members:
        if len(texts) >= _MOST_TEXTS or depth >= _DEEPEST:
            texts.append(_UNREAD)
            return
        below = (place, name)
        if isinstance(name, str) and name not in _KEYWORDS:
            texts.append(_Text(below, name[:_LONGEST], is_name=True))
        _gather(below, item, depth + 1, texts)


def _forms(each: _Text) -> str:
    """Return the text and, if it differs, its plain form: joined lines, split words, resolved look-alikes."""
    text = each.text
    plain = text if text.isascii() else readable(text)
    if each.is_name:
        plain = _WORD_BOUNDARY.sub(" ", plain)
    elif "\n" in plain:
        plain = "\n".join(" ".join(paragraph.split()) for paragraph in _PARAGRAPHS.split(plain))
    return text if plain == text else f"{text}\n\n{plain}"


def _is_for_programs(each: _Text) -> bool:
    """Return whether a text belongs to the schema's own syntax and has no room for prose."""
    keyword = each.place[1] if each.place is not None and not each.is_name else None
    if keyword == "pattern":
        return _PROSE.search(each.text) is None
    if keyword in ("$ref", "$dynamicRef"):
        return each.text.startswith("#") and " " not in each.text
    return keyword == "$schema" and _SCHEMA.fullmatch(each.text) is not None


def _hidden(texts: Sequence[_Text]) -> Problem | None:
    for place, text, is_name, _ in texts:
        if text.isascii() and text.isprintable() and _MUCH_BLANK not in text:
            continue
        if count := count_hidden(text):
            return _problem("tool.hidden_characters", place, f"has {count} hidden characters", text)
        odd = [each for each in _UNPLAIN.findall(text) if is_odd_space(each)]
        if (is_name and odd) or len([each for each in odd if each not in _SPACES_OF_PROSE]) > _MOST_ODD_SPACES:
            return _problem("tool.hidden_characters", place, f"has {len(odd)} unusual spaces", text)
        if (padding := _PADDING.search(text)) is not None:
            after = text[padding.end() :]
            return _problem("tool.hidden_characters", place, f"has text behind {len(padding[0])} blanks", after)
    return None


def _look_alike(own: ToolRef, alike: Looks) -> Problem | None:
    """Report other tools whose names look like this one. The same name on another server is not a disguise."""
    twins = sorted(str(ref) for ref in alike.get(look(own.tool), ()) if ref.tool != own.tool)
    if twins:
        codes = "" if own.tool.isascii() else f" ({_codes(own.tool)})"
        others = visible(", ".join(twins[:3]))
        return Problem("tool.look_alike", f"The name {visible(own.tool)}{codes} looks like {others}.")
    if looks_foreign(own.tool):
        message = f"The name {visible(own.tool)} has letters that look like others: {_codes(own.tool)}."
        return Problem("tool.look_alike", message)
    return None


def _codes(name: str) -> str:
    """Return the code points of the non-ASCII characters in a name."""
    return ", ".join(f"U+{ord(each):04X}" for each in dict.fromkeys(name) if not each.isascii())


def _encoded(texts: Sequence[_Text]) -> Problem | None:
    for place, text, _, is_joined in texts:
        if not is_joined and (message := hidden_message(text)) is not None:
            return _problem("tool.encoded_text", place, "has encoded text", message)
    return None


def _unread(texts: Sequence[_Text]) -> Problem | None:
    for each in texts:
        if each is _UNREAD or len(each.text) >= _LONGEST:
            return _problem("tool.not_plain", each.place, "has more text than is checked", each.text)
    return None


def _names(text: str) -> list[str]:
    """Return everything in a text that could be a name: like `_NAME`, at a fifth of the cost for most texts."""
    if not text.isascii() or ".." in text:
        return _NAME.findall(text)
    apart = b" %b " % text.encode().translate(_APART)
    return apart.replace(b". ", b" ").replace(b" .", b" ").decode().split()


def _other_tool(texts: Sequence[_Text], own: ToolRef, others: Mapping[str, frozenset[str]]) -> Problem | None:
    for each in texts if others else ():
        for name in _names(each.text):
            if name in others and own.server not in others[name]:
                return _problem("tool.names_other_tool", each.place, "speaks of another server's tool", name)
    return None


def _first(
    texts: Sequence[_Text], joined: str, folded: str, signs: Iterable[Sign], code: str, what: str
) -> Problem | None:
    """Return a problem for the first text with a sign. All texts are tested together first, as most have none."""
    patterns = [sign.pattern for sign in signs if sign.is_in(joined, folded)]
    for each in texts if patterns else ():
        forms = _forms(each)
        matches = [match for pattern in patterns if (match := pattern.search(forms))]
        if matches:
            return _problem(code, each.place, what, min(matches, key=re.Match[str].start)[0])
    return None


def _written(place: _Place) -> str:
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(str(name))
    return "/".join(reversed(names))


def _problem(code: str, place: _Place, what: str, text: str) -> Problem:
    return Problem(code, f"{_excerpt(_written(place))} {what}: {_excerpt(text)}".lstrip())


def _excerpt(text: str) -> str:
    shown = visible(" ".join(text[: 4 * _EXCERPT].split()))
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
