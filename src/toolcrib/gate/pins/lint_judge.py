"""Judges the texts of a definition by their signs, as they are written, in plain form, and decoded.

Pure. Must never take longer than the length of the text warrants: every search is bounded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from toolcrib.gate.pins.lint_attacks import ATTACKS
from toolcrib.gate.pins.lint_context import is_chosen, is_defensive, is_described, is_inspected, is_quoted, is_shown
from toolcrib.gate.pins.lint_encoded import Decoded, decoded_texts, may_hide_message, words_of_prose
from toolcrib.gate.pins.lint_languages import may_order, orders
from toolcrib.gate.pins.lint_orders import ORDERS, PHRASES
from toolcrib.gate.pins.lint_plain import departure, speaks_to_reader
from toolcrib.gate.pins.lint_private import PRIVATE, TOPICS
from toolcrib.gate.pins.lint_signs import Context, Severity, Sign, SignIndex, beginnings, run_on
from toolcrib.gate.pins.lint_texts import LintFinding, Text, finding, forms, is_for_programs, plain_form

SIGNS: Final = (*ORDERS, *PRIVATE, *ATTACKS)
_INDEX = SignIndex(SIGNS)
_PHRASES = SignIndex(PHRASES)
_CONTEXTS: Final[Mapping[Context, Callable[[str, int, int], bool]]] = MappingProxyType(
    {
        "described": is_described,
        "quoted": is_quoted,
        "defensive": is_defensive,
        "inspected": is_inspected,
        "chosen": is_chosen,
        "shown": is_shown,
    }
)
_MOST_MATCHES = 20
_MOST_DECODED = 100
_MOST_ADDED = 2000
"""Maximum characters of all texts of added arguments together."""
_SENTENCE = 6
_MESSAGE = 8
"""An encoded text of this many words is a message; one that speaks to its reader needs fewer."""


class _Match(NamedTuple):
    """A sign in a text. The span is that in the form that was searched."""

    code: str
    reason: str
    severity: Severity
    start: int
    end: int


def judge(texts: Sequence[Text]) -> Iterator[LintFinding]:
    """Yield the findings in texts. Those of one code may be many."""
    joined = "\n\n".join([forms(each) for each in texts])
    folded = joined.casefold()
    words = beginnings(folded)
    signs = _INDEX.in_text(folded, words)
    foreign = may_order(folded, words)
    if signs or foreign:
        for each in texts:
            yield from _in_text(each, signs, foreign=foreign)
    yield from _in_parts(texts, signs)
    if may_hide_message(joined):
        for each in texts:
            if not each.is_joined:
                yield from _lint_encoded(each)


def judge_addition(added: Sequence[Text]) -> LintFinding | None:
    """Return a finding in the texts of added arguments that are longer or less plain than an argument needs."""
    texts = [each for each in added if not each.is_joined and not is_for_programs(each)]
    for each in texts:
        span = (0, len(each.text))
        if (topic := TOPICS.search(forms(each))) is not None:
            reason = "speaks of secrets or private data"
            return finding("tool.names_credentials", each.place, reason, topic[0], span)
        if (departs := departure(each.text, is_name=each.is_name)) is not None:
            return finding("tool.not_plain", each.place, departs, each.text, span)
    if sum(len(each.text) for each in texts) > _MOST_ADDED:
        return finding("tool.not_plain", None, "together have a long text", texts[0].text, (0, 0))
    return None


def _in_parts(texts: Sequence[Text], known: Sequence[Sign]) -> Iterator[LintFinding]:
    """Yield phrases that only all texts together have: spelled in parts, in names, or with other marks than spaces."""
    words = run_on(" ".join([plain_form(each) for each in texts if not each.is_joined]).casefold())
    for each in _PHRASES.in_text(words, beginnings(words)):
        match = each.folded.search(words)
        if match is not None and each not in known:
            yield finding(each.code, None, f"A text in several parts {each.reason}", match[0], (0, 0))


def _in_text(each: Text, signs: Iterable[Sign], *, foreign: bool) -> Iterator[LintFinding]:
    written = list(_matches(each.text, signs, foreign=foreign))
    for match in written:
        span = (match.start, match.end)
        yield finding(match.code, each.place, match.reason, each.text[match.start : match.end], span, match.severity)
    plain = plain_form(each)
    if plain != each.text:
        for match in _matches(plain, signs, foreign=foreign):
            shown = plain[match.start : match.end]
            yield finding(match.code, each.place, match.reason, shown, _span_in(each.text, shown), match.severity)


def _matches(text: str, signs: Iterable[Sign], *, foreign: bool) -> Iterator[_Match]:
    for each in signs:
        for match in islice(each.pattern.finditer(text), _MOST_MATCHES):
            if not _is_discounted(each, text, match):
                yield _Match(each.code, each.reason, each.severity, *match.span())
                break
    for order, start, end in orders(text) if foreign else ():
        yield _Match(order.code, order.reason, "hold", start, end)


def _is_discounted(each: Sign, text: str, match: re.Match[str]) -> bool:
    return each.unless is not None and _CONTEXTS[each.unless](text, *match.span())


def _span_in(text: str, shown: str) -> tuple[int, int]:
    """Return the span in a text of something found in its plain form, or that of the whole text."""
    words = [re.escape(word) for word in shown.split()[:100]]
    found = re.search(r"\s{1,100}".join(words), text, re.IGNORECASE) if words else None
    return found.span() if found is not None else (0, len(text))


def _lint_encoded(each: Text) -> Iterator[LintFinding]:
    known: set[str] | None = None
    for decoded in islice(decoded_texts(each.text), _MOST_DECODED):
        if known is None:
            known = {match.reason for match in _matches(each.text, _signs_in(each.text), foreign=True)}
        match = _in_decoded(decoded, known)
        if match is not None:
            reason = f"hides text in {decoded.form} that {match.reason}"
            shown, span = decoded.text[match.start : match.end], (decoded.start, decoded.end)
            yield finding("tool.encoded_text", each.place, reason, shown, span, match.severity)
            if match.severity == "hold":
                return


def _in_decoded(decoded: Decoded, known: set[str]) -> _Match | None:
    """Return what is wrong with a decoded text, apart from the `known` reasons of the text around it."""
    signs = _signs_in(decoded.text)
    foreign = not decoded.text.isascii() or bool(signs)
    found = [match for match in _matches(decoded.text, signs, foreign=foreign) if match.severity == "hold"]
    if found:
        new = [match for match in found if match.reason not in known]
        return new[0] if new else None
    if len(decoded.text) > decoded.end - decoded.start:  # the text around it, not a part of it
        return None
    words = words_of_prose(decoded.text)
    speaks = words >= _SENTENCE and speaks_to_reader(decoded.text)
    if not speaks and words < _MESSAGE:
        return None
    return _Match("", "is a message", "hold" if speaks else "warn", 0, len(decoded.text))


def _signs_in(text: str) -> list[Sign]:
    folded = text.casefold()
    return _INDEX.in_text(folded, beginnings(folded))
