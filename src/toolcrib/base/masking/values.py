"""Masks secret values: known ones wherever they appear again, and those in JSON, by field name and neighbouring values.

`KnownSecrets` is shared by the whole crib: code that resolves, issues or stores a secret adds it, and every display and
record masks with it. URL-encoded, JSON-encoded and base64-encoded forms are found too. Short and common values are not
added, since they would mask ordinary words.

`Redactor` also bounds the size: it shows the arguments of a call in its audit record and with its approval. Most
arguments are small and plain, which a fast check on their bytes detects. Must never take time in proportion to
arguments that are not shown.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final
from urllib.parse import quote, quote_plus

from toolcrib.base.masking import MASK
from toolcrib.base.masking.literals import any_of
from toolcrib.base.masking.randomness import SHORTEST
from toolcrib.base.masking.text import is_ordinary, is_plain_word, mask_certain, mask_text
from toolcrib.base.masking.words import (
    SHORTEST_FORM,
    Suspicion,
    announced,
    is_count,
    is_identifier,
    is_secret_name,
    is_secret_of,
)
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object

_SHORTEST_KNOWN: Final = 6
_LONGEST_KNOWN: Final = 4096
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

_DEEPEST: Final = 64
_NAME_FIELDS: Final = ("name", "key", "header", "variable", "field", "k", "id", "label")
_VALUE_FIELDS: Final = frozenset({"value", "val", "v", "content", "data", "text"})
_SUSPECT: Final = re.compile(
    any_of([
        "pass", "pwd", "secret", "token", "cookie", "cred", "auth", "jwt", "key", "bearer", "basic ", "negotiate",
        "signature", "sig=", "sas=", "code=", "private", "hook", "dsn", "/trigger/", "/v1/spaces/", "telegram.org/",
        "logic.azure", "pipedream", "dingtalk", "open-apis/bot",
        *map("".join, product(("otp", "pin", "sas", "pat", "sig"), ('"', "=", '\\"', "'", ":"))),
        "mnemonic", "-----begin", "putty-", "connection", "database_ur", "database-ur", "databaseur",
        "--user", "--proxy-user",
    ]).encode()
)  # fmt: skip
"""Markers, in lower case, of everything that is masked because of its context."""
_LOGIN: Final = re.compile(rb"://[^/\"\s]*@")
_FLAG: Final = re.compile(rb"(?<=[ \"])-[up]")
_LONG_WORD: Final = re.compile(rb"[\w+/=.~%%:|$-]{%d,}" % SHORTEST_FORM)


_IN_RUNS: Final = bytes.maketrans(
    bytes(range(256)), bytes(120 if _LONG_WORD.fullmatch(bytes((code,)) * SHORTEST_FORM) else 32 for code in range(256))
)
_RUN: Final = b"x" * SHORTEST_FORM

SHOWN_BYTES: Final = 8 * 1024
"""Maximum bytes of JSON that a `Redactor` shows, without markers."""
CUT: Final = "…"
_LONGEST_NAME = 256
_DEEPEST_SHOWN: Final = 32
_AROUND: Final = 4
"""Bytes of brackets, quotes, colon and comma around a value."""
_OVERLAP: Final = 4096
"""Characters examined beyond the shown ones, to detect a secret at the edge."""
_LONGEST_LIST: Final = 4096
"""List items examined for flags followed by secrets. Later items are not shown anyway."""


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
                sorted({form for form in _forms(value) if len(form) >= _SHORTEST_KNOWN}, key=len, reverse=True)
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
    return _SHORTEST_KNOWN <= len(value) <= _LONGEST_KNOWN and _COMMON.fullmatch(value) is None


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
        if len(middle) >= 2 * _SHORTEST_KNOWN:
            yield middle
            yield middle.replace("+", "-").replace("/", "_")


class ValueMasker:
    """Masks values, including known secrets. `certain` masks only certain secrets; see `mask_certain`."""

    def __init__(self, known: KnownSecrets, *, certain: bool = False) -> None:
        self.known = known
        self._is_certain = certain

    def is_suspect(self, encoded: bytes) -> bool:
        """Return whether this JSON may contain something to mask. Has no false negatives."""
        small = encoded.lower()
        if _SUSPECT.search(small) is not None or (b"-" in small and _FLAG.search(small) is not None):
            return True
        if (b"://" in small and _LOGIN.search(small) is not None) or self.known.occurs_in(encoded):
            return True
        if _RUN not in encoded.translate(_IN_RUNS):
            return False
        return any(not is_ordinary(word.decode(), Suspicion.VALUE) for word in _LONG_WORD.findall(encoded))

    def text(self, text: str, name: str = "") -> str:
        """Return a text, the value of the field `name`, with its secrets masked."""
        if self._is_certain:
            return mask_certain(text, self.known.mask)
        is_word = len(text) >= SHORTEST and not any(map(str.isspace, text))
        if is_identifier(name):
            return mask_certain(text, self.known.mask) if is_word else mask_text(text, self.known.mask)
        return mask_text(text, self.known.mask, Suspicion.VALUE if is_word and "/" not in text else Suspicion.TEXT)

    def json(self, value: Json, name: str = "", depth: int = 0) -> Json:
        """Return a value with its secrets masked and everything else unchanged."""
        if isinstance(value, str):
            return self.text(value, name)
        if depth >= _DEEPEST:
            return value if self._is_certain else MASK  # a person who approves must see all of it
        if is_object(value):
            hidden = paired_secret(value)
            return {
                self.text(key): self._field(key, item, is_secret_field(key, item) or key in hidden, depth)
                for key, item in value.items()
            }
        if is_array(value):
            secret = secret_items(value)
            return [self._item(item, name, secret.get(index), depth) for index, item in enumerate(value)]
        return value

    def _field(self, name: str, value: Json, is_secret: bool, depth: int) -> Json:
        is_hidden = is_secret and (not self._is_certain or _is_plain(value))
        return MASK if is_hidden else self.json(value, name, depth + 1)

    def _item(self, item: Json, name: str, start: int | None, depth: int) -> Json:
        is_hidden = start is not None and (not self._is_certain or _is_plain(item))
        return mask_from(item, start or 0) if is_hidden else self.json(item, name, depth + 1)

    def texts(self, value: Json, depth: int = 0) -> Json:
        """Return a value of our own with the secrets in its texts masked, regardless of field names."""
        if isinstance(value, str):
            return mask_text(value, self.known.mask)
        if is_object(value) and depth < _DEEPEST:
            return {name: self.texts(item, depth + 1) for name, item in value.items()}
        if is_array(value) and depth < _DEEPEST:
            return [self.texts(item, depth + 1) for item in value]
        return value


def _is_plain(value: Json) -> bool:
    return is_plain_word(str(value)) if isinstance(value, (str, int, float)) else False


def is_secret_field(name: str, value: Json) -> bool:
    """Return whether a value is a secret because of its name. Numbers of tokens are counts."""
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return is_secret_of(name, value)
    return is_secret_name(name) and not (isinstance(value, (int, float)) and is_count(name))


def paired_secret(value: Mapping[str, Json]) -> frozenset[str]:
    """Return the fields that contain a secret named by another field: `{name: "API_KEY", value: …}`."""
    if len(value) > 8 or _VALUE_FIELDS.isdisjoint(value):
        return frozenset()
    named = (value.get(field) for field in _NAME_FIELDS)
    if any(isinstance(name, str) and len(name) <= 100 and is_secret_name(name) for name in named):
        return _VALUE_FIELDS & value.keys()
    return frozenset()


def secret_items(items: Sequence[Json]) -> dict[int, int]:
    """Return the list items that are secrets because of the preceding item: index to first secret character."""
    first = items[0] if items else None
    if len(items) == 2 and isinstance(first, str) and isinstance(items[1], str) and is_name_of_secret(first):
        return {1: 0}
    if not any(isinstance(item, str) and (item[:1] == "-" or item[-1:] == ":") for item in items):
        return {}
    return announced([item if isinstance(item, str) else "" for item in items])


def is_name_of_secret(text: str) -> bool:
    """Return whether a text is just the name of a secret."""
    return re.fullmatch(r"[A-Za-z][\w.-]{1,60}", text, re.ASCII) is not None and is_secret_name(text)


def mask_from(item: Json, start: int) -> Json:
    """Return a secret item, masked from this character on."""
    return f"{item[:start]}{MASK}" if isinstance(item, str) else MASK


class Redactor:
    """Shows arguments without secrets, including the `known` ones."""

    def __init__(self, known: KnownSecrets | None = None) -> None:
        self._masker: Final = ValueMasker(known or KnownSecrets())

    def shown(self, arguments: Json, canonical: bytes) -> bytes:
        """Return the JSON to show for these arguments. `canonical` is their canonical JSON."""
        if len(canonical) <= SHOWN_BYTES and not self._masker.is_suspect(canonical):
            return canonical
        return dumps(_Excerpt(self._masker).of(arguments))

    def text(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return self._masker.text(text)


_PLAIN: Final = Redactor()


def shown(arguments: Json, canonical: bytes) -> bytes:
    """Return the JSON to show for these arguments, without known secrets. `canonical` is their canonical JSON."""
    return _PLAIN.shown(arguments, canonical)


def mask(text: str) -> str:
    """Return a text with its secrets masked, without known secrets."""
    return _PLAIN.text(text)


class _Excerpt:
    """Walks a value until the size limit is reached."""

    def __init__(self, masker: ValueMasker) -> None:
        self._masker = masker
        self._left = SHOWN_BYTES

    def of(self, value: Json, name: str = "", depth: int = 0) -> Json:
        """Return the shown part of one value with this name."""
        self._left -= _AROUND
        if value is None or isinstance(value, (bool, int, float)):
            self._left -= len(str(value))
            return value
        if is_object(value):
            return self._object(value, depth + 1) if depth < _DEEPEST_SHOWN else CUT
        if is_array(value):
            return self._array(value, name, depth + 1) if depth < _DEEPEST_SHOWN else CUT
        return self._text(value if isinstance(value, str) else str(value), name)

    def _object(self, value: JsonObject, depth: int) -> JsonObject:
        shown: JsonObject = {}
        paired = paired_secret(value)
        for name, item in value.items():
            if self._left <= 0:
                shown[CUT] = f"{len(value) - len(shown)} more"
                break
            is_secret = is_secret_field(name, item) or name in paired
            shown[self._text(name)] = self.of(MASK if is_secret else item, name, depth)
        return shown

    def _array(self, value: Sequence[Json], name: str, depth: int) -> list[Json]:
        shown: list[Json] = []
        secret = secret_items(value[:_LONGEST_LIST])
        for index, item in enumerate(value):
            if self._left <= 0:
                shown.append(f"{CUT} {len(value) - len(shown)} more")
                break
            shown.append(self.of(mask_from(item, secret[index]) if index in secret else item, name, depth))
        return shown

    def _text(self, text: str, name: str = "") -> str:
        room = max(self._left, 0)
        masked = piece = self._masker.text(text[: room + _OVERLAP], name)
        while (size := len(dumps(piece))) > room + 2:
            piece = piece[: len(piece) * room // size]
        self._left -= size + 1
        hidden = len(masked) - len(piece) + max(len(text) - room - _OVERLAP, 0)
        return f"{piece}{CUT} {hidden} more characters" if hidden else piece


def bounded_name(name: str) -> str:
    """Truncate a name from outside, which may have any length."""
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + CUT
