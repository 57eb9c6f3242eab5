"""The rule proposed after similar approvals: it covers the approved calls, and little else."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.masking.values import shown
from toolcrib.gate.approvals.remembering import propose
from toolcrib.gate.approvals.requests import ApprovalReply, new_approval, remember_as, rule_of_answer
from toolcrib.gate.approvals.similar import propose_similar
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.approvals import SIMILAR_FOR, Approval, ApprovalRequest
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, canonical
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

TOKEN = Principal("token", "laptop", "ide", "default", token_id="t1")
REF = ToolRef("tracker", "comment")
NAMES = frozenset({"repo", "text", "number", "path", "silent"})
TOOL = Tool(REF, "", {"type": "object", "properties": {name: {} for name in NAMES}})


def approval_after(calls: list[JsonObject], tool: Tool = TOOL) -> Approval | None:
    """Return the approval of the last call after approvals of the others, None without a similar rule."""
    *earlier, now = calls
    request = ApprovalRequest(
        tool.ref, tool.definition_hash, canonical(now), TOKEN, "mcp", "why", argument_names=tool.argument_names
    )
    offered = propose(request, shown)
    similar = propose_similar(request, offered, list[Json](earlier), shown)
    if similar is None:
        return None
    return new_approval(request, 60, replace(offered, prefixes=(*offered.prefixes, similar)))


def verdict(approval: Approval, arguments: JsonObject, principal: Principal = TOKEN) -> str:
    reply = ApprovalReply("approve", "always", "owner", None, None, approval.remembering.prefixes[-1].text)
    rule = rule_of_answer(approval, reply, approval.created_at)
    return decide(REF, TOOL, principal, Grants(), Rules(rules=(rule,)), arguments).verdict


def _calls(*texts: str) -> list[JsonObject]:
    return [{"repo": "acme/api", "text": text, "number": at} for at, text in enumerate(texts, 5)]


def test_constant_arguments_are_fixed_and_varying_ones_limited_to_what_they_share() -> None:
    approval = approval_after(_calls("Fixed in v1", "Fixed in v2", "Fixed in v3", "Fixed in v9"))
    assert approval is not None
    call: JsonObject = {"repo": "acme/api", "text": "Fixed in v4", "number": 7}
    assert verdict(approval, call) == "allow"
    changes: list[JsonObject] = [{"repo": "acme/web"}, {"text": "Broken"}, {"number": 9}, {"silent": True}]
    assert [verdict(approval, call | change) for change in changes] == ["ask"] * 4
    assert verdict(approval, call, replace(TOKEN, name="other", token_id="t2")) == "ask"


def test_proposal_shows_its_rule_and_ends_after_seven_days() -> None:
    approval = approval_after(_calls("Fixed 1", "Fixed 2", "Fixed 3", "Fixed 4"))
    assert approval is not None
    (offered,) = remember_as(approval)["always"]["approve"]["prefixes"]
    assert offered["prefix"] == "like the last 3 approvals"
    until = f"{approval.created_at + SIMILAR_FOR:%Y-%m-%d %H:%M} UTC"
    assert '`/text` matches "Fixed *"' in offered["sentence"]
    assert offered["sentence"].endswith(f"until {until}.")


@pytest.mark.parametrize(
    "calls",
    [
        _calls("Fixed 1", "Fixed 2", "Fixed 3"),
        _calls("Fixed 1", "Broken", "Fixed 3", "Fixed 4"),
        [{"text": "Fixed 1"}, {"text": "Fixed 2"}, {"text": "Fixed 3"}, {"text": "Fixed 4", "silent": True}],
        [{"silent": value} for value in (True, False, True, False)],
        [{"text": f"token ghp_{'a1' * 18} {number}"} for number in range(4)],
        [{"path": f"/srv/{name}/x"} for name in "abcd"],
        [{"text": f"/srv/acme/{name}"} for name in "abcd"],
    ],
    ids=[
        "too few",
        "nothing in common",
        "other arguments",
        "not text",
        "a secret",
        "paths far apart",
        "a path as text",
    ],
)
def test_no_rule_is_proposed_without_enough_in_common(calls: list[JsonObject]) -> None:
    assert approval_after(calls) is None


def test_paths_in_one_directory_are_limited_to_that_directory() -> None:
    approval = approval_after([{"path": f"/srv/acme/notes/{name}.md"} for name in "abcd"])
    assert approval is not None
    assert verdict(approval, {"path": "/srv/acme/notes/e.md"}) == "allow"
    assert verdict(approval, {"path": "/srv/acme/notes/../keys"}) == "ask"


def test_tool_that_declares_no_arguments_gets_no_proposal() -> None:
    assert approval_after(_calls("Fixed 1", "Fixed 2", "Fixed 3", "Fixed 4"), Tool(REF, "", {"type": "object"})) is None


def test_edited_arguments_cannot_be_remembered_as_similar() -> None:
    approval = approval_after(_calls("Fixed 1", "Fixed 2", "Fixed 3", "Fixed 4"))
    assert approval is not None
    reply = ApprovalReply("approve", "always", "owner", None, b"{}", "like the last 3 approvals")
    with pytest.raises(InvalidRequest):
        rule_of_answer(approval, reply, approval.created_at)


_VALUES = st.fixed_dictionaries(
    {"repo": st.sampled_from(["acme/api", "acme/web", "other", "a*b[c]d", "a*b[c]e"]), "number": st.integers(-5, 5)}
)


@settings(deadline=None, max_examples=80)
@given(st.lists(_VALUES, min_size=4, max_size=4))
def test_proposal_covers_every_approved_call(calls: list[JsonObject]) -> None:
    approval = approval_after(calls)
    if approval is not None:
        assert {verdict(approval, call) for call in calls} == {"allow"}
