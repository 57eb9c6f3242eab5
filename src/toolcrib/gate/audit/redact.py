"""Redacts the arguments of a call for its record: secrets masked, size bounded.

The record shows what was requested; the digest beside it identifies the exact arguments. Most arguments are small and
plain, which is detected from their bytes. Must never take time in proportion to arguments that are not shown, and never
change what the tool receives.
"""

from collections.abc import Sequence
from typing import Final

from toolcrib.base.masking.known import MASK, KnownSecrets
from toolcrib.base.masking.values import ValueMasker, is_secret_field, mask_from, paired_secret, secret_items
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object

LIMIT = 8 * 1024
"""Maximum bytes of JSON shown, without markers."""
CUT = "…"
_DEEPEST = 32
_AROUND = 4
"""Bytes of brackets, quotes, colon and comma around a value."""
_OVERLAP = 4096
"""Characters examined beyond the shown ones, to detect a secret at the edge."""
_LONGEST_LIST = 4096
"""List items examined for flags followed by secrets. Later items are not shown anyway."""


class Redactor:
    """Shows arguments without secrets, including the `known` ones."""

    def __init__(self, known: KnownSecrets | None = None) -> None:
        self._masker: Final = ValueMasker(known or KnownSecrets())

    def shown(self, arguments: Json, canonical: bytes) -> bytes:
        """Return the JSON to show for these arguments. `canonical` is their canonical JSON."""
        if len(canonical) <= LIMIT and not self._masker.is_suspect(canonical):
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
        self._left = LIMIT

    def of(self, value: Json, name: str = "", depth: int = 0) -> Json:
        """Return the shown part of one value with this name."""
        self._left -= _AROUND
        if value is None or isinstance(value, (bool, int, float)):
            self._left -= len(str(value))
            return value
        if is_object(value):
            return self._object(value, depth + 1) if depth < _DEEPEST else CUT
        if is_array(value):
            return self._array(value, name, depth + 1) if depth < _DEEPEST else CUT
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
