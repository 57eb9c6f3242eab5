"""Notes on what a tool says of itself: hidden characters, orders to the model, other tools, credentials.

Descriptions reach the model, so they are how tools are poisoned. A note is for a person to see; it never blocks
anything, and its absence proves nothing.

Pure. Above: the catalog's upstream tools and the view of changed definitions. Below: `model`. It must never take longer
than the length of the text warrants: texts come from outside, so every repetition in a pattern is bounded.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from toolcrib.model.json import Json, is_array, is_object
from toolcrib.model.problems import Problem
from toolcrib.model.text import is_hidden, visible
from toolcrib.model.tools import Tool, ToolRef

_Place = tuple["_Place", str | int] | None
"""Where a text stands: the place around it, and its name or number there."""
_Text = tuple[_Place, str]

_LONGEST = 64 * 1024
"""Characters looked at in each text."""
_MOST_TEXTS = 2000
_DEEPEST = 64
_EXCERPT = 80
_SHORTEST_NAME = 5
"""A shorter name of another tool is a word like any other."""

_PROSE = frozenset({"description", "title", "default", "examples", "example", "enum", "const", "$comment"})
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_APART = bytes(byte if re.match(rb"[\w.-]", bytes((byte,))) else 32 for byte in range(256))
"""Puts a space where no name goes on, in ASCII."""
_UNPLAIN = re.compile(r"[^\n\t\r -~]")


class _Sign(NamedTuple):
    """A pattern, and groups of words: one of each group is in every text that it finds. Looking for them costs a tenth
    of it."""

    groups: tuple[tuple[str, ...], ...]
    pattern: re.Pattern[str]

    def may_be_in(self, folded: str) -> bool:
        """Whether a text of this case-folded form has the words."""
        for words in self.groups:
            for word in words:
                if word in folded:
                    break
            else:
                return False
        return True


def _sign(words: tuple[str, ...], pattern: str, *more: tuple[str, ...]) -> _Sign:
    return _Sign((words, *more), re.compile(pattern, re.VERBOSE | re.IGNORECASE))


_INSTRUCTS = (
    _sign(
        ("ignore", "disregard", "forget", "override"),
        r"""\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|other|all|your)\b
            [^.\n]{0,40}\b(?:instructions?|rules?|prompts?|messages?|guidelines?)\b""",
        ("instruction", "rule", "prompt", "message", "guideline"),
    ),
    _sign(
        ("do not", "don\u2019t", "don't", "dont", "never", "without"),
        r"""\b(?:do\ not|don[’']?t|never|without)\b[^.\n]{0,30}
            \b(?:tell|telling|mention|mentioning|inform|informing|reveal|notify|notifying|ask|asking)\b
            [^.\n]{0,30}\b(?:user|human|person|owner|operator|anyone)\b""",
        ("user", "human", "person", "owner", "operator", "anyone"),
    ),
    _sign(
        ("before", "after", "prior to", "whenever", "instead of", "every time"),
        r"""\b(?:before|after|prior\ to|whenever|instead\ of|every\ time)\b[^.\n]{0,40}
            \b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\b[^.\n]{0,40}\b(?:any|other|another|this|all)\b
            [^.\n]{0,60}\b(?:you\ must|must|always|first|read|send|include|pass|call)\b""",
        ("us", "call", "invok", "run"),
        ("must", "always", "first", "read", "send", "include", "pass", "call"),
    ),
    _sign(
        ("you must", "you have to", "you are required", "you need to", "you should"),
        r"""\byou\ (?:must|have\ to|are\ required\ to|need\ to|should)
            \ (?:first|always|also|never|not|call|read|include|send)\b""",
    ),
    _sign(
        ("<",),
        r"""<\s{0,3}/?\s{0,3}(?:important|system|instructions?|secret|hidden|admin|critical|assistant)\b[^>\n]{0,40}>""",
    ),
    _sign(
        ("system prompt", "jailbreak", "developer message"),
        r"\b(?:system\ prompt|jailbreak|developer\ message)\b",
    ),
    _sign(
        ("secretly", "covertly", "silently", "quietly"),
        r"\b(?:secretly|covertly|(?:silently|quietly)\ (?:add|call|copy|include|pass|read|send))\b",
    ),
)
_CREDENTIALS = (
    _sign(
        (
            *("password", "passphrase", "key", "access", "credential", "id_", "/.", ".ssh", ".aws", ".gnupg", ".netrc"),
            *(".npmrc", ".pypirc", ".kube", ".env", "/etc/", "mcp.json", "claude_desktop_config"),
        ),
        r"""  \b(?:passwords?|passphrases?|(?:private|secret|api)[-_\ ]?keys?|access[-_\ ]?tokens?|credentials?)\b
            | \bid_(?:rsa|dsa|ecdsa|ed25519)\b | \bauthorized_keys\b | (?:~|\$HOME|/home/\w{1,64}|/root)/\.[a-z]
            | (?<!\w)\.(?:ssh|aws|gnupg|netrc|npmrc|pypirc|kube|env)\b | /etc/(?:passwd|shadow)\b
            | \bmcp\.json\b | \bclaude_desktop_config\b""",
    ),
)


def telling_names(refs: Iterable[ToolRef]) -> Mapping[str, frozenset[str]]:
    """The names of tools that are no plain words, each with the servers that have it; made once for many tools."""
    servers: defaultdict[str, set[str]] = defaultdict(set)
    for ref in refs:
        is_word = ref.tool.isalpha() and ref.tool[1:].islower()
        if len(ref.tool) >= _SHORTEST_NAME and not is_word:
            servers[ref.tool].add(ref.server)
    return {name: frozenset(having) for name, having in servers.items()}


def lint(tool: Tool, others: Mapping[str, frozenset[str]] = MappingProxyType({})) -> tuple[Problem, ...]:
    """At most one note of each kind, with the place it was found at; `others` is what `telling_names` gives."""
    said = {"name": tool.ref.tool, **tool.definition}
    texts: list[_Text] = []
    _gather(None, said, 0, True, texts)
    joined = "\n".join([text for _, text in texts])
    folded = joined.casefold()
    found = (
        _hidden(texts) if _UNPLAIN.search(joined) else None,
        _first(texts, joined, folded, _INSTRUCTS, "tool.instructs", "tells the model what to do"),
        _other_tool(texts, tool.ref, others) if others and _names_another(joined, tool.ref, others) else None,
        _first(texts, joined, folded, _CREDENTIALS, "tool.names_credentials", "speaks of secrets"),
    )
    return tuple([problem for problem in found if problem is not None])


def _gather(place: _Place, value: Json, depth: int, prose: bool, texts: list[_Text]) -> None:
    """Add the texts of a value, names of members included."""
    if isinstance(value, str):
        if prose:
            texts.append((place, value[:_LONGEST]))
    elif depth >= _DEEPEST:
        return
    elif is_object(value):
        for name, item in value.items():
            if len(texts) >= _MOST_TEXTS:
                return
            below = (place, name)
            texts.append((below, name[:_LONGEST]))
            _gather(below, item, depth + 1, name in _PROSE or not isinstance(item, str) or not depth, texts)
    elif is_array(value):
        for number, item in enumerate(value):
            if len(texts) >= _MOST_TEXTS:
                return
            _gather((place, number), item, depth + 1, prose, texts)


def _hidden(texts: list[_Text]) -> Problem | None:
    for place, text in texts:
        count = sum(is_hidden(found) for found in _UNPLAIN.findall(text))
        if count:
            return _problem("tool.hidden_characters", place, f"has {count} hidden characters", text)
    return None


def _names_another(text: str, own: ToolRef, others: Mapping[str, frozenset[str]]) -> bool:
    return any(own.server not in others[name] for name in others.keys() & _names(text))


def _names(text: str) -> list[str]:
    """All that could be names in a text: `_NAME`, for most texts at a fifth of the cost."""
    if not text.isascii() or ".." in text:
        return _NAME.findall(text)
    apart = b" %b " % text.encode().translate(_APART)
    return apart.replace(b". ", b" ").replace(b" .", b" ").decode().split()


def _other_tool(texts: list[_Text], own: ToolRef, others: Mapping[str, frozenset[str]]) -> Problem | None:
    for place, text in texts:
        for name in _names(text):
            if _names_another(name, own, others):
                return _problem("tool.names_other_tool", place, "speaks of another server's tool", name)
    return None


def _first(
    texts: list[_Text], joined: str, folded: str, signs: Iterable[_Sign], code: str, what: str
) -> Problem | None:
    """The first text that has one of the signs. Most tools have none, which all of their text at once tells."""
    patterns = [sign.pattern for sign in signs if sign.may_be_in(folded) and sign.pattern.search(joined)]
    for place, text in texts if patterns else ():
        matches = [match for pattern in patterns if (match := pattern.search(text))]
        if matches:
            return _problem(code, place, what, min(matches, key=re.Match[str].start)[0])
    return None


def _written(place: _Place) -> str:
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(str(name))
    return "/".join(reversed(names))


def _problem(code: str, place: _Place, what: str, text: str) -> Problem:
    return Problem(code, f"{_excerpt(_written(place))} {what}: {_excerpt(text)}")


def _excerpt(text: str) -> str:
    shown = visible(" ".join(text[: 4 * _EXCERPT].split()))
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
