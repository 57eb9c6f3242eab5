"""The cryptography of Web Push: messages that only one browser can decrypt (RFC 8291), and the proof of who sends them
to its push service (VAPID, RFC 8292).

Written on `cryptography`, which the crib needs anyway: it is less code than calling a library for it, and the requests
stay in the crib's own guarded client. Pure, apart from random keys.
"""

import base64
import secrets
from dataclasses import dataclass
from typing import Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import dumps

LARGEST_PAYLOAD: Final = 3_993
"""Bytes that every push service accepts (RFC 8291, section 4)."""
_AUTH_BYTES: Final = 16
_SALT_BYTES: Final = 16
_RECORD_SIZE: Final = 4_096
_LAST_RECORD: Final = b"\x02"
_NUMBER_BYTES: Final = 32
_PROOF_SECONDS: Final = 12 * 3_600
"""Seconds that a proof is valid. Push services refuse more than 24 hours."""


@dataclass(frozen=True, slots=True)
class PushKey:
    """The key pair with which one crib, or one cluster, proves its identity to push services."""

    private: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> Self:
        """Return a new key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the key that `text` returned."""
        return cls(ec.derive_private_key(int.from_bytes(decode64(text)), ec.SECP256R1()))

    @property
    def text(self) -> str:
        """The private key. A secret."""
        return encode64(self.private.private_numbers().private_value.to_bytes(_NUMBER_BYTES))

    @property
    def public(self) -> str:
        """The public key, as browsers need it to subscribe."""
        return encode64(_point(self.private.public_key()))

    def authorization(self, origin: str, subject: str, now: float) -> str:
        """Return the header that proves to the push service at `origin` who sends. `subject` is a contact."""
        claims = {"aud": origin, "exp": int(now) + _PROOF_SECONDS, "sub": subject}
        signed = f"{encode64(dumps({'typ': 'JWT', 'alg': 'ES256'}))}.{encode64(dumps(claims))}"
        numbers = decode_dss_signature(self.private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(each.to_bytes(_NUMBER_BYTES) for each in numbers)
        return f"vapid t={signed}.{encode64(signature)}, k={self.public}"


@dataclass(frozen=True, slots=True)
class BrowserKeys:
    """The keys with which messages to one browser are encrypted: its public point, and a shared secret."""

    point: bytes
    auth: bytes

    @classmethod
    def of_text(cls, point: str, auth: str) -> Self:
        """Return the keys that a browser sent. Raises `notify.invalid`."""
        try:
            keys = cls(decode64(point), decode64(auth))
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), keys.point)
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidRequest("notify.invalid", "The keys of the push subscription are not valid.") from None
        if len(keys.auth) != _AUTH_BYTES:
            raise InvalidRequest("notify.invalid", "The secret of the push subscription is not valid.")
        return keys


def encrypt(
    payload: bytes, to: BrowserKeys, salt: bytes | None = None, sender: ec.EllipticCurvePrivateKey | None = None
) -> bytes:
    """Return a payload, encrypted in one record of `aes128gcm`. A new key and salt are made for each message."""
    assert len(payload) <= LARGEST_PAYLOAD
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    sender = sender or ec.generate_private_key(ec.SECP256R1())
    own = _point(sender.public_key())
    shared = sender.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), to.point))
    material = _derive(shared, to.auth, b"WebPush: info\0" + to.point + own, 32)
    key = _derive(material, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(material, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_SIZE.to_bytes(4) + len(own).to_bytes(1) + own
    return header + AESGCM(key).encrypt(nonce, payload + _LAST_RECORD, None)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def encode64(content: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode64(text: str) -> bytes:
    """Return the bytes of base64url, with or without padding. Raises `ValueError`."""
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), b"-_", validate=True)
