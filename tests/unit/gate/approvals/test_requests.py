"""What an answer is bound to, and the rule of an answer that is remembered."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.approvals.requests import ApprovalReply, bind, new_approval, rule_of_answer
from toolcrib.gate.policy.patterns import names
from toolcrib.model.approvals import Approval, ApprovalRequest
from toolcrib.model.json import canonical
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

WORD = st.sampled_from(["a", "b", "ab", "*", "[a]", "a/b", "a\nb", "", "\ud800"])
MAYBE = st.none() | WORD
PRINCIPALS = st.builds(
    Principal, st.just("session"), WORD, st.just("web"), st.just("default"), agent=MAYBE, session=MAYBE, cwd=MAYBE
)
REQUESTS = st.builds(
    ApprovalRequest,
    st.builds(ToolRef, WORD, WORD),
    WORD,
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 1)).map(canonical),
    PRINCIPALS,
    st.just("mcp"),
    st.just("why"),
)


def approval(request: ApprovalRequest) -> Approval:
    return replace(new_approval(request, 60), id="same")


@given(REQUESTS, REQUESTS, st.sampled_from(["1", "2"]))
def test_answer_is_bound_to_the_whole_request_and_a_nonce(
    one: ApprovalRequest, two: ApprovalRequest, nonce: str
) -> None:
    same = one == two and nonce == "1"
    assert (bind(approval(one), "1") == bind(approval(two), nonce)) == same


@given(st.builds(ToolRef, st.text("ab*?[]!-", min_size=1), st.text("ab*?[]!-/", min_size=1)), REQUESTS)
def test_rule_of_an_answer_names_its_tool_and_no_other(ref: ToolRef, request: ApprovalRequest) -> None:
    pending = approval(replace(request, ref=ref))
    rule = rule_of_answer(pending, ApprovalReply("approve", "always", "owner", None, None), datetime.now(UTC))
    assert names(rule.pattern, ref)
    for other in (ToolRef("b" + ref.server, ref.tool), ToolRef(ref.server, ref.tool + "a"), ToolRef("a", "a")):
        assert names(rule.pattern, other) == (other == ref)
    assert (rule.effect, rule.definition_hash, rule.session) == ("allow", request.definition_hash, None)
