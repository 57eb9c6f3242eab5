"""Detects encoded text that a model reads and a person does not: base64, hex, percent-encoding, entities, escapes.

Pure and bounded. Data that does not decode to text, such as an image or a hash, is not a finding.
"""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

_CANDIDATE = re.compile(
    r"""(?P<hex>\b(?:[0-9a-fA-F]{2}){16,4096}\b) | (?P<base64>[A-Za-z0-9+/_-]{32,8192}={0,2})
      | (?P<percent>(?:%[0-9a-fA-F]{2}[\w.~-]{0,12}){8,2048}) | (?P<entities>(?:&\#x?[0-9a-fA-F]{1,6};){8,2048})
      | (?P<escapes>(?:\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})){8,2048})""",
    re.VERBOSE,
)
_SHORTEST = 24
_MOST = 50
_LETTERS = 0.6
_WORDS = re.compile(r"[^\W\d_]{2,}")


def may_hide_message(text: str) -> bool:
    """Return whether a text contains a word long enough to be encoded text."""
    return any(len(word) >= _SHORTEST for word in text.split())


def hidden_message(text: str) -> str | None:
    """Return the first encoded message in a text, decoded, or None."""
    for number, match in enumerate(_CANDIDATE.finditer(text)):
        if number >= _MOST:
            return None
        for decoded in _decoded(match):
            if _is_prose(decoded):
                return decoded
    return None


def _decoded(match: re.Match[str]) -> Iterator[str]:
    found = match[0]
    try:
        match match.lastgroup:
            case "hex":
                yield bytes.fromhex(found).decode()
            case "base64":
                plain = found.rstrip("=").replace("-", "+").replace("_", "/")
                yield base64.b64decode(plain[: len(plain) // 4 * 4]).decode("utf-8")
            case "percent":
                yield unquote_to_bytes(found).decode()
            case "entities":
                yield html.unescape(found)
            case _:
                yield found.encode().decode("unicode_escape")
    except (ValueError, binascii.Error):
        return


def _is_prose(text: str) -> bool:
    """Return whether decoded data is text in words."""
    if not text.replace("\n", " ").replace("\t", " ").isprintable() or len(_WORDS.findall(text)) < 3:
        return False
    return sum(each.isalpha() or each == " " for each in text) >= _LETTERS * len(text)
