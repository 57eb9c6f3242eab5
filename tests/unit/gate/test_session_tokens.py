"""Secrets of sessions: their principal, their reach and their end."""

from dataclasses import replace

import pytest

from toolcrib.gate.principals import Principals, SessionTokens
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef


def test_secret_authenticates_the_current_session_until_it_ends() -> None:
    sessions = SessionTokens()
    principals = Principals("owner", sessions=sessions)
    now = [Principal("session", "s", "api", "default", session="s")]
    with sessions.issued(lambda: now[0] if now else None, _never) as token:
        assert token.secret.startswith("tcs_")
        assert not token.is_used
        found = principals.authenticate(token.secret.encode())
        assert found is not None
        assert (found.principal, found.ended) == (now[0], token.ended)
        assert token.is_used
        now[0] = replace(now[0], mode="plan")
        again = principals.authenticate(token.secret.encode())
        assert again is not None
        assert again.principal.mode == "plan"
        now.clear()
        assert principals.authenticate(token.secret.encode()) is None
        assert principals.authenticate(token.secret.encode()[:-1]) is None
    assert token.ended.is_set()
    now.append(Principal("session", "s", "api", session="s"))
    assert principals.authenticate(token.secret.encode()) is None


@pytest.mark.parametrize("path", ["/", "/api/tools", "/api/approvals", "/mcp/", "/mcp/servers/lab", "/mcp/agents/a"])
def test_session_reaches_only_the_mcp_endpoint(path: str) -> None:
    principals = Principals("owner")
    for agent in (None, "a"):
        session = Principal("session", "s", "web", "bypassPermissions", agent, "s")
        assert principals.may_reach(session, "/mcp")
        assert not principals.may_reach(session, path)
        assert not principals.may_answer(session, session)


@pytest.mark.anyio
async def test_call_is_routed_to_the_session_of_its_secret() -> None:
    sessions = SessionTokens()
    one = Principal("session", "1", "api", session="1")
    two = Principal("session", "2", "api", session="2")

    async def echo_call(ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None) -> CallResult:
        return CallResult.text(f"{ref} {arguments}")

    ref = ToolRef("lab", "echo")
    with sessions.issued(lambda: one, _never), sessions.issued(lambda: two, echo_call):
        assert (await sessions.call(replace(two, mode="plan"), ref, {"n": 1}, None)).is_error is False
    assert (await sessions.call(two, ref, {}, None)).is_error is True


async def _never(ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None) -> CallResult:
    raise AssertionError(ref)
