"""Masks secrets in JSON values: by field name, by neighbouring values, and in every text.

A fast check on the encoded bytes detects that there is nothing to mask: the arguments of every call are masked for its
record, and most contain no secret.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from toolcrib.base.masking.known import MASK, KnownSecrets
from toolcrib.base.masking.literals import any_of
from toolcrib.base.masking.names import is_count, is_identifier, is_secret_name
from toolcrib.base.masking.randomness import SHORTEST
from toolcrib.base.masking.text import is_ordinary, is_plain_word, mask_certain, mask_text
from toolcrib.base.masking.words import SHORTEST_FORM, Suspicion, announced, is_secret_of
from toolcrib.model.json import Json, is_array, is_object

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
            return mask_certain(text, self.known)
        is_word = len(text) >= SHORTEST and not any(map(str.isspace, text))
        if is_identifier(name):
            return mask_certain(text, self.known) if is_word else mask_text(text, self.known)
        return mask_text(text, self.known, Suspicion.VALUE if is_word and "/" not in text else Suspicion.TEXT)

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
            return mask_text(value, self.known)
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
