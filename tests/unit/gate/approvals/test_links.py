"""Approval links: what they are bound to, and when they stop working."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toolcrib.gate.approvals.links import LINK_PATH, ApprovalLinks, check_claim
from toolcrib.model.approvals import Approval
from toolcrib.model.errors import ToolcribError
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ADDRESS = "https://phone.example"
APPROVAL = Approval(
    id="0123456789abcdef",
    status="pending",
    door="api",
    principal=Principal("owner", "owner", "api"),
    ref=ToolRef("bench", "echo"),
    definition_hash="d",
    arguments=b'{"text":"x"}',
    why="It changes things.",
    created_at=NOW,
    expires_at=NOW + timedelta(minutes=10),
)


def token_of(links: ApprovalLinks, approval: Approval = APPROVAL) -> str:
    """Return the credential in a link."""
    return links.url(approval).removeprefix(f"{ADDRESS}{LINK_PATH}")


def refusal(links: ApprovalLinks, token: str, approval: Approval = APPROVAL, now: datetime = NOW) -> str | None:
    """Return the error code of a refused link, None if it is accepted."""
    try:
        check_claim(links.read(token), approval, now)
    except ToolcribError as error:
        return error.code
    return None


def test_link_works_for_its_approval_after_a_restart() -> None:
    token = token_of(ApprovalLinks(b"key", ADDRESS))
    assert refusal(ApprovalLinks(b"key", ADDRESS), token) is None


def test_link_with_any_changed_character_is_refused() -> None:
    links = ApprovalLinks(b"key", ADDRESS)
    token = token_of(links)
    for place, character in enumerate(token):
        changed = token[:place] + ("a" if character != "a" else "b") + token[place + 1 :]
        assert refusal(links, changed) == "approval.link_invalid", place
    for changed in ("", token[:-1], f"{token}a", token.upper(), f"{token}\n"):
        assert refusal(links, changed) == "approval.link_invalid", changed


def test_link_of_another_home_is_refused() -> None:
    assert refusal(ApprovalLinks(b"other", ADDRESS), token_of(ApprovalLinks(b"key", ADDRESS))) == (
        "approval.link_invalid"
    )


@pytest.mark.parametrize(
    ("approval", "now", "code"),
    [
        (replace(APPROVAL, status="approved", decided_by="approval link"), NOW, "approval.decided"),
        (replace(APPROVAL, status="withdrawn"), NOW, "approval.decided"),
        (replace(APPROVAL, status="expired", reason="Not answered."), NOW, "approval.link_expired"),
        (APPROVAL, APPROVAL.expires_at, "approval.link_expired"),
        (replace(APPROVAL, arguments=b'{"text":"y"}'), NOW, "approval.link_invalid"),
    ],
)
def test_link_is_refused_once_its_approval_is_over_or_different(approval: Approval, now: datetime, code: str) -> None:
    links = ApprovalLinks(b"key", ADDRESS)
    assert refusal(links, token_of(links), approval, now) == code


def test_no_link_is_made_without_an_address_or_a_pending_approval() -> None:
    with pytest.raises(ToolcribError) as unset:
        ApprovalLinks(b"key", None).url(APPROVAL)
    with pytest.raises(ToolcribError) as decided:
        ApprovalLinks(b"key", ADDRESS).url(replace(APPROVAL, status="denied"))
    assert (unset.value.code, decided.value.code) == ("approval.no_address", "approval.decided")
