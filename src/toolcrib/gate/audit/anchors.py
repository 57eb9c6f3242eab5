"""Anchors: the end of the chain at one moment, stored where a writer of the home has no access.

An anchor is one JSON object with the number and hash of the newest record, the count of records, the time and, if the
crib has a key in the keyring, a signature. A later verification checks that the chain still contains that record.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

import orjson

from toolcrib.gate.audit.head import ChainHead
from toolcrib.gate.audit.signing import HeadKey
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject

_VERSION: Final = 1
_HASH_LENGTH: Final = 64
MOST: Final = 100_000
"""Maximum anchors of one verification."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The end of one crib's chain at one moment. `crib` distinguishes the chains of different homes."""

    crib: str
    head: ChainHead
    records: int
    at: str
    signature: str | None = None

    @classmethod
    def now(cls, crib: str, head: ChainHead, records: int, key: HeadKey | None) -> Self:
        """Create an anchor, signed if there is a key."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(crib, head, records, at, key.sign(head, f"{crib} {records} {at}") if key is not None else None)

    def is_signed_by(self, key: HeadKey) -> bool:
        """Return whether this key signed the anchor."""
        signed_text = f"{self.crib} {self.records} {self.at}"
        return self.signature is not None and key.fits(self.signature, self.head, signed_text)

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        shape: JsonObject = {
            "toolcribAnchor": _VERSION,
            "crib": self.crib,
            "number": self.head.number,
            "hash": self.head.hash,
            "records": self.records,
            "at": self.at,
        }
        return shape if self.signature is None else {**shape, "signature": self.signature}

    def to_line(self) -> bytes:
        """Return the anchor as one line."""
        return orjson.dumps(self.to_json(), option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of_json(cls, shape: Json) -> Self:
        """Parse an anchor. Raises `InvalidRequest` (`audit.anchor`)."""
        match shape:
            case {
                "toolcribAnchor": 1,
                "crib": str(crib),
                "number": int(number),
                "hash": str(digest),
                "records": int(records),
                "at": str(at),
            } if len(digest) == _HASH_LENGTH and 0 <= number < 2**63:
                signature = shape.get("signature")
                return cls(
                    crib, ChainHead(number, digest), records, at, signature if isinstance(signature, str) else None
                )
            case _:
                raise InvalidRequest("audit.anchor", f"This is not an anchor: {str(shape)[:200]}")


def read_anchors(lines: Iterable[bytes]) -> list[Anchor]:
    """Parse anchors, one per line, skipping empty lines. Raises `InvalidRequest` (`audit.anchor`)."""
    found: list[Anchor] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            shape: Json = orjson.loads(line)
        except orjson.JSONDecodeError:
            text = line[:200].decode("utf-8", "replace")
            raise InvalidRequest("audit.anchor", f"This is not an anchor: {text}") from None
        found.append(Anchor.of_json(shape))
    return found
