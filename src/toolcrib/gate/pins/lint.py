"""Lints tool definitions: hidden characters, orders to the model, other tools, private data, attacks, look-alike names.

Descriptions reach the model, so they are how tools are poisoned. At first sight of a server a finding is a note for a
person. A finding that holds, in a new tool of a known server or in any other new text, keeps it back (`pins`). The
absence of findings proves nothing. `lint_addition` is stricter: an optional argument has no reason to be anything but
plain.

Pure. Must never take longer than the length of the text warrants: every repetition in a pattern is bounded.
"""

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Final

from toolcrib.gate.pins.lint_texts import LONGEST, UNREAD, LintFinding, Text, finding, holding, one_of_each, texts_of
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.look_alikes import look, looks_foreign
from toolcrib.model.problems import Problem
from toolcrib.model.text import count_hidden, is_hidden, is_odd_space, visible
from toolcrib.model.tools import Tool, ToolRef

__all__ = [
    "ABOUT_OTHERS",
    "FINDINGS",
    "NO_CLASHES",
    "NO_LOOKS",
    "NO_NAMES",
    "Clashes",
    "Looks",
    "clashes",
    "holding",
    "lint",
    "lint_addition",
    "lint_alone",
    "lint_beside",
    "lint_text",
    "looks_of",
    "mentions",
    "telling_names",
]

Looks = Mapping[str, Mapping[str, frozenset[str]]]
"""Tool names by their look, each with the servers that use it."""
Clashes = Mapping[str, frozenset[ToolRef]]
"""Tools that can be mistaken for each other, by the look of their names."""
NO_NAMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})
NO_LOOKS: Final[Looks] = MappingProxyType({})
NO_CLASHES: Final[Clashes] = MappingProxyType({})

FINDINGS: Final = frozenset(
    {
        "tool.hidden_characters",
        "tool.instructs",
        "tool.look_alike",
        "tool.names_other_tool",
        "tool.names_credentials",
        "tool.describes_attack",
        "tool.promotes_itself",
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

_SHORTEST_NAME = 5
"""Shorter names of other tools are treated as ordinary words."""
_LONGEST_BLANK = 80
_MOST_LINES = 12
"""A longer run of blank lines or spaces pushes the text after it out of sight."""
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_APART = bytes(byte if re.match(rb"[\w.-]", bytes((byte,))) else 32 for byte in range(256))
"""Maps every ASCII byte that cannot be part of a name to a space."""
_UNPLAIN = re.compile(r"[^\n\t\r -~]")
_EMOJI = re.compile(
    "[#*0-9]\ufe0f\u20e3|[\u2190-\u2bff\U0001f000-\U0001faff]\ufe0f\u200d|[\u3400-\u9fff][\ufe00-\ufe0f\U000e0100-\U000e01ef]|[\u203c\u2049\u2190-\u2bff\u3030\u303d\u00a9\u00ae][\ufe0e\ufe0f]"
    "|\U0001f3f4[\U000e0061-\U000e007a]{5}\U000e007f"
    "|(?<=[\u0590-\u08ff])[ .]?[\u200e\u200f]|[\u200e\u200f](?=[ .]?[\u0590-\u08ff])"
)
"""Keycaps, styled symbols, flags of regions, variants of ideographs, and marks beside right-to-left letters."""
_PADDING = re.compile(rf"\s{{{_LONGEST_BLANK},}}|(?:\n[ \t]*){{{_MOST_LINES},}}")
_MUCH_BLANK = " " * 20
_SPACES_OF_PROSE = "\u00a0\u202f\u3000"
_MOST_ODD_SPACES = 3
_AROUND = 120
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
_ORDER = re.compile(
    r"""\b(?:use|using|call|calls|calling|invok\w{1,3}|run|running|execut\w{1,3}|before|instead|whenever|must|should|always|never|replac\w{1,3}
        |supersed\w{1,3}|overrid\w{1,3}|prefer|rout\w{1,3}|forward\w{0,3}|intercept\w{0,3}|deprecated|broken|unsafe|insecure|hook\w{0,3}
        |modif\w{1,4}|trigger|do\ not|don[’']t|avoid|ignore|redirect\w{0,3})\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words of an order about a tool."""
_VARIANT = re.compile(r"(?i)[_.-]?v\d{1,2}$|[_.-](?:new|latest|updated|enhanced|improved|official|fixed)$")
"""Ending that makes a variant of another tool's name."""


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
    texts = texts_of({"name": tool.ref.tool, **tool.definition})
    return frozenset(filter(_is_telling, _names("\n".join([each.text for each in texts]))))


def looks_of(refs: Iterable[ToolRef]) -> Looks:
    """Return the names of tools by their look."""
    servers: defaultdict[str, set[str]] = defaultdict(set)
    for ref in refs:
        servers[ref.tool].add(ref.server)
    found: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for name, having in servers.items():
        found[look(name)][name] = frozenset(having)
    found.pop("", None)
    return dict(found)


def clashes(own: Iterable[ToolRef], others: Looks) -> Clashes:
    """Return the looks that a server's tools share with a tool of another name, its own or one in `others`.

    A variant of the name of another server's tool, such as `send_mail_v2` of `send_mail`, counts as the same look,
    unless the server has a tool of that name itself.
    """
    looks = looks_of(own)
    shared: dict[str, frozenset[ToolRef]] = {}
    for each, names in looks.items():
        models = {model for name in names if (model := look(_VARIANT.sub("", name))) not in looks}
        alike = [others[model] for model in (each, *models) if model in others]
        if len(set(names).union(*alike)) == 1:  # decided by the names alone, because many servers may share one
            continue
        servers = frozenset[str]().union(*names.values())
        foreign = {ToolRef(server, name) for by in alike for name, having in by.items() for server in having - servers}
        refs = foreign | {ToolRef(server, name) for name, having in names.items() for server in having}
        if len({ref.tool for ref in refs}) > 1:
            shared[each] = frozenset(refs)
    return shared


def lint(
    tool: Tool, others: Mapping[str, frozenset[str]] = NO_NAMES, alike: Clashes = NO_CLASHES
) -> tuple[Problem, ...]:
    """Return at most one finding of each kind, with its location.

    `others` is the result of `telling_names`, `alike` that of `clashes`.
    """
    return (*lint_beside(tool, others, alike), *lint_alone(tool))


def lint_alone(tool: Tool) -> tuple[Problem, ...]:
    """Return the findings that depend on nothing but the definition."""
    return _lint_texts(texts_of({"name": tool.ref.tool, **tool.definition}))


def lint_beside(
    tool: Tool, others: Mapping[str, frozenset[str]] = NO_NAMES, alike: Clashes = NO_CLASHES
) -> tuple[Problem, ...]:
    """Return the findings about the tools of other servers: a look-alike name, and a mention of one of them."""
    name = _look_alike(tool.ref, alike)
    texts = texts_of({"name": tool.ref.tool, **tool.definition}) if others else ()
    mention = _other_tool(texts, tool.ref, others)
    return tuple([problem for problem in (name, mention) if problem is not None])


def lint_text(definition: JsonObject) -> tuple[Problem, ...]:
    """Return the findings in any definition whose text reaches a model: a prompt, a resource, instructions."""
    return _lint_texts(texts_of(definition))


def lint_addition(
    ref: ToolRef, added: Mapping[str, Json], others: Mapping[str, frozenset[str]] = NO_NAMES
) -> tuple[Problem, ...]:
    """Return the findings in optional arguments that were added to a tool, by name.

    Text that is longer or less plain than an argument needs is also a finding, because no list of signs is complete.
    """
    all_texts = texts_of(dict(added))
    mention = _other_tool(all_texts, ref, others)
    found = holding(_lint_texts(all_texts))
    if found or mention is not None:
        return found if mention is None else (mention, *found)
    unplain: LintFinding | None = _judging().judge_addition(all_texts)
    return () if unplain is None else (unplain,)


@cache
def _judging() -> ModuleType:
    """Return the module with the signs, whose patterns are compiled with the first use and not with the crib."""
    return importlib.import_module("toolcrib.gate.pins.lint_judge")


def _lint_texts(texts: Sequence[Text]) -> tuple[LintFinding, ...]:
    return one_of_each([*_lint_hidden(texts), *_judging().judge(texts), *_unread(texts)])


def _lint_hidden(texts: Sequence[Text]) -> Iterator[LintFinding]:
    for each in texts:
        text = each.text
        if text.isascii() and text.isprintable() and _MUCH_BLANK not in text:
            continue
        if found := _hidden_in(each):
            yield found
            return


def _same_length(match: re.Match[str]) -> str:
    return "." * len(match[0])


def _hidden_in(each: Text) -> LintFinding | None:
    text = _EMOJI.sub(_same_length, each.text)
    unseen: tuple[str, str, tuple[int, int]] | None = None
    odd = [match for match in _UNPLAIN.finditer(text) if is_odd_space(match[0])]
    rare = [match for match in odd if match[0] not in _SPACES_OF_PROSE]
    if count := count_hidden(text):
        places = [match.start() for match in _UNPLAIN.finditer(text) if is_hidden(match[0])]
        unseen = f"has {count} hidden characters", text, (places[0], places[-1] + 1)
    elif (each.is_name and odd) or len(rare) > _MOST_ODD_SPACES:
        unseen = f"has {len(odd)} unusual spaces", text, (odd[0].start(), odd[-1].end())
    elif (padding := _PADDING.search(text)) is not None:
        unseen = f"has text behind {len(padding[0])} blanks", text[padding.end() :], padding.span()
    return finding("tool.hidden_characters", each.place, *unseen) if unseen is not None else None


def _look_alike(own: ToolRef, alike: Clashes) -> Problem | None:
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


def _unread(texts: Sequence[Text]) -> Iterator[LintFinding]:
    for each in texts:
        if each is UNREAD or len(each.text) >= LONGEST:
            span = (0, len(each.text))
            yield finding("tool.not_plain", each.place, "has more text than is checked", each.text, span)
            return


def _names(text: str) -> list[str]:
    """Return everything in a text that could be a name: like `_NAME`, at a fifth of the cost for most texts."""
    if not text.isascii() or ".." in text:
        return _NAME.findall(text)
    apart = b" %b " % text.encode().translate(_APART)
    return apart.replace(b". ", b" ").replace(b" .", b" ").decode().split()


def _other_tool(texts: Sequence[Text], own: ToolRef, others: Mapping[str, frozenset[str]]) -> LintFinding | None:
    """Report a mention of another server's tool. One in an order holds.

    A tool of the same name on another server is a coincidence.
    """
    mentioned: LintFinding | None = None
    for each in texts if others else ():
        for name in dict.fromkeys(_names(each.text)):
            if name in others and name != own.tool and own.server not in others[name]:
                start = each.text.find(name)
                span = (start, start + len(name))
                severity = "hold" if _orders_use(each, span) else "warn"
                found = finding(
                    "tool.names_other_tool", each.place, "speaks of another server's tool", name, span, severity
                )
                if severity == "hold":
                    return found
                mentioned = mentioned or found
    return mentioned


def _orders_use(each: Text, span: tuple[int, int]) -> bool:
    """Return whether the words around a name are an order. A name of an argument is not prose, so it counts as one."""
    before = _SENTENCE_END.split(each.text[max(0, span[0] - _AROUND) : span[0]])[-1]
    after = _SENTENCE_END.split(each.text[span[1] : span[1] + _AROUND])[0]
    around = f"{before} {after}"
    return each.is_name or each.is_joined or _ORDER.search(around) is not None
