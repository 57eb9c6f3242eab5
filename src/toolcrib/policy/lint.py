"""Notes on what a tool says of itself: hidden characters, orders to the model, other tools, credentials.

Descriptions reach the model, so they are how tools are poisoned. A note is for a person to see; it never blocks
anything, and its absence proves nothing.

Pure. Above: the catalog's upstream tools and the view of changed definitions. Below: `model`. It must never take longer
than the length of the text warrants: texts come from outside, so every repetition in a pattern is bounded.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from toolcrib.model.json import Json, is_array, is_object
from toolcrib.model.problems import Problem
from toolcrib.model.text import is_hidden, visible
from toolcrib.model.tools import Tool, ToolRef

_LONGEST = 64 * 1024
"""Characters looked at in each text."""
_MOST_TEXTS = 2000
_DEEPEST = 64
_EXCERPT = 80
_SHORTEST_NAME = 5
"""A shorter name of another tool is a word like any other."""

_PROSE = frozenset({"description", "title", "default", "examples", "example", "enum", "const", "$comment"})
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_UNPLAIN = re.compile(r"[^\n\t\r -~]")
_INSTRUCTS = re.compile(
    r"""
      \b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|other|all|your)\b
            [^.\n]{0,40}\b(?:instructions?|rules?|prompts?|messages?|guidelines?)\b
    | \b(?:do\ not|don[’']?t|never|without)\b[^.\n]{0,30}
            \b(?:tell|telling|mention|mentioning|inform|informing|reveal|notify|notifying|ask|asking)\b
            [^.\n]{0,30}\b(?:user|human|person|owner|operator|anyone)\b
    | \b(?:before|after|prior\ to|whenever|instead\ of|every\ time)\b[^.\n]{0,40}
            \b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\b[^.\n]{0,40}\b(?:any|other|another|this|all)\b
            [^.\n]{0,60}\b(?:you\ must|must|always|first|read|send|include|pass|call)\b
    | \byou\ (?:must|have\ to|are\ required\ to|need\ to|should)
            \ (?:first|always|also|never|not|call|read|include|send)\b
    | <\s{0,3}/?\s{0,3}(?:important|system|instructions?|secret|hidden|admin|critical|assistant)\b[^>\n]{0,40}>
    | \b(?:system\ prompt|jailbreak|developer\ message)\b
    | \b(?:secretly|covertly|(?:silently|quietly)\ (?:add|call|copy|include|pass|read|send))\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CREDENTIALS = re.compile(
    r"""
      \b(?:passwords?|passphrases?|(?:private|secret|api)[-_\ ]?keys?|access[-_\ ]?tokens?|credentials?)\b
    | \bid_(?:rsa|dsa|ecdsa|ed25519)\b | \bauthorized_keys\b | (?:~|\$HOME|/home/\w{1,64}|/root)/\.[a-z]
    | (?<!\w)\.(?:ssh|aws|gnupg|netrc|npmrc|pypirc|kube|env)\b | /etc/(?:passwd|shadow)\b
    | \bmcp\.json\b | \bclaude_desktop_config\b
    """,
    re.VERBOSE | re.IGNORECASE,
)

_INSTRUCTING = (
    "ignore", "disregard", "forget", "override", "do not", "don\u2019t", "don't", "dont", "never", "without", "before",
    "after", "prior to", "whenever", "instead of", "every time", "you must", "you have to", "you are required",
    "you need to", "you should", "<", "system prompt", "jailbreak", "developer message", "secretly", "covertly",
    "silently", "quietly",
)  # fmt: skip
_SECRET = (
    "password", "passphrase", "key", "access", "credential", "id_", "/.", ".ssh", ".aws", ".gnupg", ".netrc", ".npmrc",
    ".pypirc", ".kube", ".env", "/etc/", "mcp.json", "claude_desktop_config",
)  # fmt: skip
"""Of these at least one is in every text that the patterns find: looking for them costs a tenth of a pattern."""


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
    words = _walk("", said, 0, prose=True)
    texts = [(place, text[:_LONGEST]) for place, text in islice(words, _MOST_TEXTS)]
    folded = "\n".join(text for _, text in texts).casefold()
    found = (
        _hidden(texts),
        _first(texts, _INSTRUCTS, "tool.instructs", "tells the model what to do")
        if _any(_INSTRUCTING, folded)
        else None,
        _other_tool(texts, tool.ref, others) if others else None,
        _first(texts, _CREDENTIALS, "tool.names_credentials", "speaks of secrets") if _any(_SECRET, folded) else None,
    )
    return tuple(problem for problem in found if problem is not None)


def _any(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)


def _walk(place: str, value: Json, depth: int, *, prose: bool) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if prose:
            yield place, value
    elif is_object(value):
        for name, item in value.items():
            below = f"{place}/{name}"
            yield below, name
            yield from _walk(below, item, depth + 1, prose=name in _PROSE or not isinstance(item, str) or not depth)
    elif is_array(value):
        for number, item in enumerate(value):
            yield from _walk(f"{place}/{number}", item, depth + 1, prose=prose)


def _hidden(texts: list[tuple[str, str]]) -> Problem | None:
    for place, text in texts:
        count = sum(is_hidden(found) for found in _UNPLAIN.findall(text))
        if count:
            return _problem("tool.hidden_characters", place, f"has {count} hidden characters", text)
    return None


def _other_tool(texts: list[tuple[str, str]], own: ToolRef, others: Mapping[str, frozenset[str]]) -> Problem | None:
    for place, text in texts:
        for name in _NAME.findall(text):
            if own.server not in others.get(name, (own.server,)):
                return _problem("tool.names_other_tool", place, "speaks of another server's tool", name)
    return None


def _first(texts: list[tuple[str, str]], pattern: re.Pattern[str], code: str, what: str) -> Problem | None:
    for place, text in texts:
        if match := pattern.search(text):
            return _problem(code, place, what, match[0])
    return None


def _problem(code: str, place: str, what: str, text: str) -> Problem:
    return Problem(code, f"{_excerpt(place.lstrip('/'))} {what}: {_excerpt(text)}")


def _excerpt(text: str) -> str:
    shown = visible(" ".join(text[: 4 * _EXCERPT].split()))
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
