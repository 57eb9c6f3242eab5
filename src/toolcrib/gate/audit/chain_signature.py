"""The signature of one chain: its key, the signed records, and problems with them."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from toolcrib.gate.audit.anchors import Anchor
from toolcrib.gate.audit.head import ChainHead
from toolcrib.gate.audit.signing import HeadKey, SignatureFile, read_signed
from toolcrib.gate.audit.verify import ChainFinding, Witness


class ChainSignature:
    """The signature state of one chain. Verification waits for `looked_for`, which is set after the key lookup."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.key: HeadKey | None = None
        self.looked_for = anyio.Event()
        self.looked_for.set()

    def look(self) -> None:
        """Mark the key lookup as running."""
        self.looked_for = anyio.Event()

    def opened(self, key: HeadKey) -> SignatureFile:
        """Use this key. Returns the file that every head is signed in."""
        signer = SignatureFile(self._path, key)
        self.key = key
        return signer

    async def left_wrong(
        self, key: HeadKey, head: ChainHead, hash_of: Callable[[int], Awaitable[str | None]]
    ) -> Sequence[str]:
        """Return the problems with what an earlier run signed. Empty for a key that was never used."""
        if not key.used:
            return ()
        signed = await anyio.to_thread.run_sync(read_signed, self._path)
        wrong: list[str] = []
        if signed is None or not key.fits(signed.signature, signed.head):
            wrong.append(
                f"{self._path.name} was missing, or not signed with the key in the keyring, at record {head.number}."
            )
        known = {signed.head if signed is not None and not wrong else None, key.known}
        for each in sorted(each for each in known if each is not None and each.number):
            if each.number > head.number:
                wrong.append(f"Record {each.number} was signed and is missing: the chain ends at {head.number}.")
            elif await hash_of(each.number) not in (each.hash, None):
                wrong.append(f"Record {each.number} differs from the one that was signed.")
        return wrong

    async def witnesses(self) -> tuple[list[Witness], list[ChainFinding]]:
        """Return the signed records, and the problems with the current signature file."""
        await self.looked_for.wait()
        if self.key is None:
            return [], []
        signed = await anyio.to_thread.run_sync(read_signed, self._path)
        if signed is None or not self.key.fits(signed.signature, signed.head):
            return [], [
                ChainFinding("signature", f"{self._path.name} is missing or was not signed with the crib's key.")
            ]
        witnesses = [Witness(signed.head, "signature", f"{self._path.name} names")]
        if self.key.known is not None:
            witnesses.append(Witness(self.key.known, "signature", "The keyring names"))
        return witnesses, []

    def wrongly_signed(self, anchors: Sequence[Anchor]) -> list[ChainFinding]:
        """Return a finding for each anchor with a signature that the crib's key did not make."""
        if self.key is None:
            return []
        key = self.key
        return [
            ChainFinding("anchor", f"The anchor of {each.at} was not signed with the crib's key.")
            for each in anchors
            if each.signature is not None and not each.is_signed_by(key)
        ]
