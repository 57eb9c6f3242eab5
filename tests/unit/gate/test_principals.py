"""Authentication of tokens, the definition of a person, and the paths that a token reaches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.principals import Principals
from toolcrib.model.principals import Principal

TOKEN = "o" * 43
PRINCIPALS = Principals(TOKEN)


@pytest.mark.parametrize(("source", "mode"), [("ide", "acceptEdits"), ("api", "default"), ("cli", "default")])
def test_owner_is_authenticated_by_the_token(source: str, mode: str) -> None:
    credential = PRINCIPALS.authenticate(
        TOKEN.encode(), "ide" if source == "ide" else "api" if source == "api" else "cli"
    )
    assert credential is not None
    assert (credential.principal.is_owner, credential.principal.source, credential.principal.mode) == (
        True,
        source,
        mode,
    )
    assert credential.ended is None


@given(st.binary(max_size=100))
def test_other_tokens_are_rejected(token: bytes) -> None:
    assert (PRINCIPALS.authenticate(token) is not None) == (token == TOKEN.encode())


@pytest.mark.parametrize(
    ("principal", "person"),
    [
        (PRINCIPALS.owner("web"), True),
        (PRINCIPALS.owner("cli", cwd="/home/me"), True),
        (PRINCIPALS.owner("api"), True),
        (PRINCIPALS.owner("ide"), False),
        (PRINCIPALS.owner("scheduler"), False),
        (PRINCIPALS.owner("web", agent="reviewer"), False),
        (PRINCIPALS.owner("cli", mode="default"), False),
        (PRINCIPALS.owner("api", session="s"), False),
        (Principal("session", "owner", "web", by_hand=True), False),
        (Principal("token", "owner", "api", by_hand=True), False),
    ],
)
def test_only_the_owner_acting_by_hand_is_a_person(principal: Principal, person: bool) -> None:
    assert PRINCIPALS.is_person(principal) is person
    assert PRINCIPALS.may_answer(principal, Principal("session", "s", "web", session="s")) is person


IDE = Principal("token", "laptop", "ide")
BOUND = Principal("token", "bound", "ide", agent="reviewer")
API = Principal("token", "script", "api")


@pytest.mark.parametrize(
    ("path", "reaching"),
    [
        ("/mcp", {IDE, API}),
        ("/mcp/servers/github", {IDE, API}),
        ("/mcp/agents/reviewer", {BOUND}),
        ("/mcp/agents/reviewer/x", {BOUND}),
        ("/mcp/agents/reviewers", set[Principal]()),
        ("/mcp/agents/other", set[Principal]()),
        ("/mcp/agents", set[Principal]()),
        ("/mcpx", set[Principal]()),
        ("/api/tools", {API}),
        ("/api/tools/weather/forecast/call", {API}),
        ("/api/toolsx", set[Principal]()),
        ("/api/approvals/1", set[Principal]()),
        ("/api/servers", set[Principal]()),
        ("/api/tokens", set[Principal]()),
        ("/api/policy/rules", set[Principal]()),
        ("/api/audit", set[Principal]()),
        ("/", set[Principal]()),
    ],
)
def test_token_reaches_only_its_own_paths(path: str, reaching: set[Principal]) -> None:
    assert {each for each in (IDE, BOUND, API) if PRINCIPALS.may_reach(each, path)} == reaching
    assert PRINCIPALS.may_reach(PRINCIPALS.owner("api"), path)
