"""Signs webhook requests as the Standard Webhooks specification describes, so that its libraries verify them."""

import base64
import hmac
import secrets
import time
from typing import Final

PREFIX: Final = "whsec_"


def sign(body: bytes, secret: str, *, id: str | None = None, at: int | None = None) -> dict[str, str]:
    """Return the headers that sign a body: `webhook-id`, `webhook-timestamp` and `webhook-signature`."""
    id = id or f"msg_{secrets.token_hex(12)}"
    stamp = str(int(time.time()) if at is None else at)
    signed = hmac.digest(_key(secret), f"{id}.{stamp}.".encode() + body, "sha256")
    signature = f"v1,{base64.b64encode(signed).decode()}"
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}


def _key(secret: str) -> bytes:
    """Return the key: the decoded part after `whsec_`, else the text itself."""
    encoded = secret.removeprefix(PREFIX)
    return secret.encode() if encoded == secret else base64.b64decode(encoded)
