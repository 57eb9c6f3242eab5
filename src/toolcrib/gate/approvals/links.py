"""One-time signed links that answer an approval from another device.

A link names an approval, the digest of its arguments and the time it expires, and is signed with a key of the home. It
is a credential for this one answer: it works at the configured address only, until the approval is answered or expires,
and never writes a rule. Nothing is stored for it, so a link survives a restart for as long as its approval does.

Must never sign for an address that the owner did not configure.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from toolcrib.gate.approvals.requests import already_decided
from toolcrib.model.approvals import Approval
from toolcrib.model.errors import Conflict, Denied

LINK_PATH = "/approve/"
"""The prefix of the path of every link."""
_FORM = re.compile(r"([0-9a-f]{16})\.([0-9]{1,12})\.([0-9a-f]{64})\.([A-Za-z0-9_-]{43})")
_PURPOSE = b"toolcrib approval link\0"


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """What a link with a valid signature names."""

    approval: str
    arguments_digest: str
    expires_at: datetime


class ApprovalLinks:
    """Makes and checks approval links. `address` is the configured origin, or None if there are no links."""

    def __init__(self, key: bytes, address: str | None) -> None:
        self._key = hmac.digest(key, _PURPOSE, "sha256")
        self.address = address

    def url(self, approval: Approval) -> str:
        """Return the link for a pending approval. Raises `approval.no_address`, `approval.decided`."""
        if self.address is None:
            raise Conflict("approval.no_address", "No address is configured for approval links.")
        if approval.status != "pending":
            raise already_decided(approval.id, approval.status, approval.decided_by)
        named = f"{approval.id}.{int(approval.expires_at.timestamp())}.{_digest(approval)}"
        return f"{self.address}{LINK_PATH}{named}.{self._signature(named)}"

    def read(self, token: str) -> LinkClaim:
        """Return what a link names. Raises `approval.link_invalid` if this crib did not sign exactly this link."""
        form = _FORM.fullmatch(token)
        named, _, signature = token.rpartition(".")
        if form is None or not hmac.compare_digest(self._signature(named), signature):
            raise _invalid()
        return LinkClaim(form[1], form[3], datetime.fromtimestamp(int(form[2]), UTC))

    def _signature(self, named: str) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, named.encode(), "sha256")).rstrip(b"=").decode()


def check_claim(claim: LinkClaim, approval: Approval, now: datetime) -> None:
    """Raise unless the link can still answer this approval.

    Raises `approval.decided`, `approval.link_expired`, and `approval.link_invalid` for other arguments.
    """
    if approval.status not in ("pending", "expired"):
        raise already_decided(approval.id, approval.status, approval.decided_by)
    if approval.status == "expired" and approval.reason:
        raise Denied("approval.link_expired", approval.reason)
    if now >= claim.expires_at or approval.status == "expired":
        message = f"This link expired at {claim.expires_at:%Y-%m-%d %H:%M:%S} UTC. The call was denied."
        raise Denied("approval.link_expired", message)
    if not hmac.compare_digest(_digest(approval), claim.arguments_digest):
        raise _invalid()


def _digest(approval: Approval) -> str:
    return hashlib.sha256(approval.arguments).hexdigest()


def _invalid() -> Denied:
    return Denied("approval.link_invalid", "This link was changed or shortened, or another crib made it.")
