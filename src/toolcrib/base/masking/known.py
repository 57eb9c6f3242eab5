"""Masks values that came from a secret's place wherever they appear again.

`KnownSecrets` is shared by the whole crib: code that resolves, issues or stores a secret adds it, and every display and
record masks with it. URL-encoded, JSON-encoded and base64-encoded forms are found too. Short and common values are not
added, since they would mask ordinary words.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from toolcrib.base.masking.literals import any_of

MASK: Final = "***"
SHORTEST: Final = 6
_LONGEST: Final = 4096
_FEW: Final = 24
_MANY: Final = 1024
_MOST_GROUPS: Final = 24
"""Limits: texts searched one by one, texts per large pattern, and patterns. The oldest are dropped first."""
_SHORTEST_LINE: Final = 12
_COMMON: Final = re.compile(
    r"(?i:true|false|null|none|default|enabled|disabled|password|passw0rd|secret|changeme|example|localhost|production"
    r"|development|staging|postgres|bearer|undefined|unknown|anonymous|public|private|master|develop|readonly|toolcrib"
    r"|username|required|optional|https?)|[a-z]{1,7}|[0-9]{1,7}|(.)\1*|[/~.][a-z0-9./_-]*"
)
"""Values that occur in ordinary text: short words and numbers, repeated characters, paths."""


class KnownSecrets:
    """Secret values, and patterns that find them. A pattern covers many values, so that adding one is cheap."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._recent: list[str] = []
        self._groups: list[_Group] = []
        self.add(*values)

    def add(self, *values: str) -> None:
        """Add secrets. Idempotent; values that are too short or too common are ignored."""
        for value in map(str.strip, values):
            if value in self._values or not is_maskable(value):
                continue
            self._values[value] = None
            self._recent.extend(
                sorted({form for form in _forms(value) if len(form) >= SHORTEST}, key=len, reverse=True)
            )
            if len(self._recent) >= _FEW:
                self._regroup()

    def _regroup(self) -> None:
        """Compile a pattern for the newest values; patterns of similar size are merged, so their number stays small."""
        forms, self._recent = self._recent, []
        while self._groups and len(self._groups[-1].forms) <= min(len(forms), _MANY):
            forms = [*self._groups.pop().forms, *forms]
        self._groups.append(_Group(forms))
        if len(self._groups) > _MOST_GROUPS:
            del self._groups[0]

    def mask(self, text: str) -> str:
        """Return the text with all known secrets masked."""
        for form in self._recent:
            if form in text:
                text = text.replace(form, MASK)
        for group in self._groups:
            text = group.pattern.sub(MASK, text)
        return text

    def occurs_in(self, text: bytes) -> bool:
        """Return whether this JSON contains a known secret."""
        if not self._values:
            return False
        decoded = text.decode("utf-8", "replace")
        return any(form in decoded for form in self._recent) or any(
            group.pattern.search(decoded) is not None for group in self._groups
        )


class _Group:
    """Texts that one pattern finds."""

    def __init__(self, forms: list[str]) -> None:
        self.forms = forms
        self.pattern = re.compile(any_of(forms))


def is_maskable(value: str) -> bool:
    """Return whether a value can be masked without hiding ordinary words."""
    return SHORTEST <= len(value) <= _LONGEST and _COMMON.fullmatch(value) is None


def _forms(value: str) -> Iterator[str]:
    """Yield the forms of a value: plain, line by line, in a URL, in JSON (once and twice encoded), in base64."""
    yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)
    yield quote(value, safe="")
    yield quote_plus(value)
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield from _encode(value)


def _encode(value: str) -> Iterator[str]:
    """Yield the middle of the value's base64 for each of its three alignments in longer data."""
    raw = value.encode("utf-8", "surrogatepass")
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        # The first and last characters depend on the bytes before and after the value.
        middle = encoded[(0, 2, 3)[shift] : len(encoded) - (0 if (len(raw) + shift) % 3 == 0 else 1)]
        if len(middle) >= 2 * SHORTEST:
            yield middle
            yield middle.replace("+", "-").replace("/", "_")
