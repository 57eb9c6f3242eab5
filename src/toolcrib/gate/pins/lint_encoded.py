"""Decodes text that a model reads and a person does not: base64, hex, percent-encoding, entities, escapes, tags.

The lint judges the decoded text like any other. Data that does not decode to text, such as an image or a hash, is
skipped.

Pure and bounded.
"""

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote

from toolcrib.gate.pins.lint_signs import linear

_BLOB = re.compile(r"[A-Za-z0-9+/_-]{16,8192}={0,2}")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-fA-F]{2}){8,4096}")
_DATA = re.compile(r"[0-9+=]|[A-Z][a-z]?[A-Z]")
"""Occurs in encoded text of 12 bytes with few exceptions, and not in most words."""
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
_ENTITY = re.compile(r"&(?:\#\d{2,6}|\#[xX][0-9a-fA-F]{2,6}|[a-zA-Z]{2,8});")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_HEX_PAIRS = re.compile(r"\b(?:[0-9a-fA-F]{2}[ :,-]){8,512}[0-9a-fA-F]{2}\b")
_may_be_data = linear(r"[A-Za-z0-9+/_-]{16}|(?:[0-9a-fA-F]{2}[ :,-]){8}")
"""Returns whether a text may contain `_BLOB` or `_HEX_PAIRS`, at little cost."""
_TAGS = re.compile("[\U000e0020-\U000e007e]{2,}")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_NOT_HEX = re.compile(r"[^0-9a-fA-F]")
_MOST = 50
_DEEPEST = 2
_LETTERS = 0.6
_WORDS = re.compile(r"[^\W\d_]{2,}")


class Decoded(NamedTuple):
    """A decoded text, and the span of its encoded form."""

    text: str
    start: int
    end: int
    form: str


def may_hide_message(text: str) -> bool:
    """Return whether a text contains something that may be encoded text."""
    if "%" in text or "&" in text or "\\" in text or not text.isascii():
        return True
    if not _may_be_data(text):
        return False
    return any(_DATA.search(match[0]) for match in _BLOB.finditer(text)) or _HEX_PAIRS.search(text) is not None


def decoded_texts(text: str, depth: int = 0) -> Iterator[Decoded]:
    """Yield the texts that are encoded in a text. What is encoded twice is decoded twice."""
    for each in _decode(text):
        yield each
        if depth + 1 < _DEEPEST:
            for inner in decoded_texts(each.text, depth + 1):
                yield Decoded(inner.text, each.start, each.end, f"{each.form} and {inner.form}")


def _decode(text: str) -> Iterator[Decoded]:
    for mark, pattern, form, decode in _WITHIN_TEXT:
        found = [match.span() for match in islice(pattern.finditer(text), _MOST)] if mark in text else ()
        if found:
            yield Decoded(decode(text), found[0][0], found[-1][1], form)
    if not text.isascii():
        yield from _from_unseen(text)
    for match in islice(_HEX_PAIRS.finditer(text), _MOST):
        decoded = _text_of(bytes.fromhex(_NOT_HEX.sub("", match[0])))
        if decoded is not None:
            yield Decoded(decoded, *match.span(), "hex")
    for match in islice(_BLOB.finditer(text), _MOST):
        if _DATA.search(match[0]):
            yield from _from_blob(match)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), text)


_WITHIN_TEXT: tuple[tuple[str, re.Pattern[str], str, Callable[[str], str]], ...] = (
    ("%", _PERCENT, "percent-encoding", unquote),
    ("&", _ENTITY, "HTML entities", html.unescape),
    ("\\", _ESCAPE, "escapes", _unescape),
)
"""Encodings of single characters, which are decoded within their text."""


def _from_unseen(text: str) -> Iterator[Decoded]:
    """Decode text in Unicode tags, and bytes in variation selectors."""
    for match in _TAGS.finditer(text):
        yield Decoded("".join(chr(ord(each) - 0xE0000) for each in match[0]), *match.span(), "Unicode tags")
    for match in _SELECTORS.finditer(text):
        values = (ord(each) - 0xFE00 if ord(each) <= 0xFE0F else ord(each) - 0xE0100 + 16 for each in match[0])
        decoded = _text_of(bytes(values))
        if decoded is not None:
            yield Decoded(decoded, *match.span(), "variation selectors")


def _from_blob(match: re.Match[str]) -> Iterator[Decoded]:
    found = match[0]
    if _HEX.fullmatch(found):
        decoded = _text_of(bytes.fromhex(found.removeprefix("0x")))
        if decoded is not None:
            yield Decoded(decoded, *match.span(), "hex")
    plain = found.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except binascii.Error:
        return
    decoded = _text_of(data)
    if decoded is not None:
        yield Decoded(decoded, *match.span(), "base64")


def _text_of(data: bytes) -> str | None:
    """Return decoded data if it is printable text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", " ").replace("\t", " ").isprintable() else None


def words_of_prose(text: str) -> int:
    """Return the number of words in a decoded text, or 0 if it is data rather than prose."""
    if text.lstrip()[:1] in ("{", "[", "<"):
        return 0
    if sum(each.isalpha() or each == " " for each in text) < _LETTERS * len(text):
        return 0
    return len(_WORDS.findall(text))
