"""Signs the end of the chain with a key that is not in the home.

A process that can write the home can write a whole new chain with a matching `audit.head`. If the system has a keyring,
the crib keeps a random key there and writes `audit.signature` beside the head after every commit: number and hash of
the newest record, and an HMAC-SHA256 over both. The newest record is also stored in the keyring from time to time, so
that an old signature cannot pass for the newest. Without a keyring nothing is signed: a key file in the home would
prove nothing.
"""

import hmac
import logging
import os
import re
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from toolcrib.base.files.private import PLAIN, claim
from toolcrib.gate.audit.head import ChainHead
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject

KEY: Final = "audit key"
"""The name of the key in the keyring; `HEAD` is that of the newest record."""
HEAD: Final = "audit head"
_LINE: Final = re.compile(rb"(0[0-8]\d{18}) ([0-9a-f]{64}) ([0-9a-f]{64})\n")
_PURPOSE: Final = b"toolcrib audit head\0"

logger = logging.getLogger(__name__)


class HeadKey:
    """The key of one chain, and the newest record that the keyring knows."""

    def __init__(
        self, key: bytes, keep: Callable[[str, JsonObject], None], known: ChainHead | None, *, used: bool
    ) -> None:
        """`known` is the newest stored record. An unused key has signed nothing yet."""
        self._key = key
        self._keep = keep
        self.known = known
        self.used = used

    def sign(self, head: ChainHead, more: str = "") -> str:
        """Return the signature of a position in the chain and of `more`."""
        message = b"%b%d %b %b" % (_PURPOSE, head.number, head.hash.encode(), more.encode())
        return hmac.new(self._key, message, sha256).hexdigest()

    def fits(self, signature: str, head: ChainHead, more: str = "") -> bool:
        """Return whether this key made the signature."""
        return hmac.compare_digest(signature, self.sign(head, more))

    def remember(self, head: ChainHead) -> None:
        """Store the newest record in the keyring. Blocking; a failure is logged."""
        if self.known is not None and self.known.number >= head.number:
            return
        try:
            self._keep(HEAD, {"number": head.number, "hash": head.hash})
            self.known = head
        except ConfigError as error:
            logger.warning("Could not store the end of the audit chain in the keyring: %s", error.message)

    def restart(self) -> None:
        """Forget what was signed, after the chain was replaced on purpose. Blocking; a failure is logged."""
        try:
            self._keep(KEY, {"key": self._key.hex(), "used": False})
            self._keep(HEAD, {"number": 0, "hash": "0" * 64})
        except ConfigError as error:
            logger.warning("The keyring cannot be written: %s", error.message)

    def mark_used(self) -> None:
        """Store in the keyring that a signature of this key must exist from now on. Blocking."""
        if not self.used:
            try:
                self._keep(KEY, {"key": self._key.hex(), "used": True})
                self.used = True
            except ConfigError as error:
                logger.warning("The keyring cannot be written: %s", error.message)


class Signed(NamedTuple):
    """The content of the signature file: the position in the chain and its signature."""

    head: ChainHead
    signature: str


def read_signed(path: Path) -> Signed | None:
    """Read the signature file. Returns None if it is missing or invalid. Blocking."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as file:
            found = _LINE.fullmatch(file.read(1024))
    except OSError:
        return None
    return Signed(ChainHead(int(found[1]), found[2].decode()), found[3].decode()) if found is not None else None


class SignatureFile:
    """The signature file, opened for writing after every commit."""

    def __init__(self, path: Path, key: HeadKey) -> None:
        claim(path)
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        self._key = key
        self._failed = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def write(self, head: ChainHead) -> None:
        """Sign the newest record. A failure is logged and leaves the file behind the database, which is allowed."""
        line = b"%020d %b %b\n" % (head.number, head.hash.encode(), self._key.sign(head).encode())
        try:
            if sys.platform == "win32":
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                os.write(self._descriptor, line)
            else:
                os.pwrite(self._descriptor, line, 0)
        except OSError as error:
            if not self._failed:
                logger.warning("The signature of the audit chain cannot be written: %s.", error.strerror)
            self._failed = True
        else:
            self._failed = False
