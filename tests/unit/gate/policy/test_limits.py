"""Limits: counted per tool, server or session, refused with a message, and released in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.limits import MOST_SESSIONS, Limit, Limits, read_limits_file
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from unit.clock import Clock

SEARCH, STAR, MAIL = ToolRef("github", "search"), ToolRef("github", "star"), ToolRef("mail", "send")


def session(name: str = "s1", source: str = "cli") -> Principal:
    return Principal("session", "x", "scheduler" if source == "scheduler" else "cli", session=name)


def call(limits: Limits, ref: ToolRef, principal: Principal) -> bool:
    """Call as the gate does, and return whether the call was allowed."""
    if limits.check(principal, ref) is not None:
        return False
    limits.count(principal, ref)
    return True


def test_each_tool_is_counted_separately_in_each_session() -> None:
    limits = Limits([Limit("github/*", calls=2)])
    one, two = session("s1"), session("s2")
    assert [call(limits, SEARCH, one) for _ in range(3)] == [True, True, False]
    assert call(limits, STAR, one)
    assert call(limits, SEARCH, two)
    assert call(limits, MAIL, one)
    assert limits.check(one, SEARCH) == (
        "Limit reached: github/search may be called 2 times in a session and was called 2 times. "
        "Continue without it, or ask the owner to raise the limit."
    )


def test_limit_may_count_a_whole_server_or_session() -> None:
    principal = session()
    by_server = Limits([Limit(each="server", calls=1)])
    assert [call(by_server, ref, principal) for ref in (SEARCH, STAR, MAIL)] == [True, False, True]
    by_session = Limits([Limit(each="session", calls=1)])
    assert [call(by_session, ref, principal) for ref in (SEARCH, MAIL)] == [True, False]


def test_rate_limit_is_released_as_time_passes() -> None:
    clock = Clock()
    limits = Limits([Limit(calls=2, seconds=60)], clock)
    principal = session()
    assert call(limits, SEARCH, principal)
    clock.now = 30
    assert call(limits, SEARCH, principal)
    refusal = limits.check(principal, SEARCH)
    assert refusal is not None
    assert refusal.endswith("within 60 s and was called 2 times. Try again in 30 s.")
    clock.now = 60
    assert [call(limits, SEARCH, principal) for _ in range(2)] == [True, False]


def test_limit_applies_only_to_its_sources() -> None:
    limits = Limits([Limit(calls=0, sources=("scheduler",))])
    assert call(limits, SEARCH, session())
    assert not call(limits, SEARCH, session(source="scheduler"))


def test_token_is_counted_by_name_and_a_session_can_be_forgotten() -> None:
    limits = Limits([Limit(calls=1)])
    token = Principal("token", "laptop", "ide")
    assert [call(limits, SEARCH, token) for _ in range(2)] == [True, False]
    assert call(limits, SEARCH, Principal("token", "desk", "ide"))
    assert [call(limits, SEARCH, session()) for _ in range(2)] == [True, False]
    limits.forget("s1")
    assert call(limits, SEARCH, session())


def test_least_recently_active_session_is_evicted() -> None:
    limits = Limits([Limit(calls=1)])
    first = session("first")
    assert call(limits, SEARCH, first)
    for number in range(MOST_SESSIONS - 1):
        limits.count(session(str(number)), SEARCH)
    assert not call(limits, SEARCH, first)
    limits.count(session("one more"), SEARCH)
    assert not call(limits, SEARCH, first)
    assert call(limits, SEARCH, session("0"))


@pytest.mark.parametrize("limits", [Limits(), Limits([Limit("other/*", calls=0)])])
def test_tool_without_a_matching_limit_is_not_refused(limits: Limits) -> None:
    assert all(call(limits, SEARCH, session()) for _ in range(5))


@given(st.lists(st.floats(0, 20), max_size=40), st.integers(1, 4), st.floats(1, 10))
@settings(deadline=None)
def test_no_span_has_more_calls_than_the_rate(waits: list[float], most: int, seconds: float) -> None:
    clock = Clock()
    limits = Limits([Limit(calls=most, seconds=seconds)], clock)
    made: list[float] = []
    for wait in waits:
        clock.now += wait
        if call(limits, SEARCH, session()):
            made.append(clock.now)
    for end in made:
        assert sum(1 for at in made if end - seconds < at <= end) <= most


LIMITS = """\
[[limits]]
pattern = "github/*"
each = "server"
calls = 3
sources = ["scheduler"]

[[limits]]
calls = 20
each = "session"
seconds = 60
"""


def test_limits_of_a_file_are_read() -> None:
    found = read_limits_file(LIMITS, "f")
    assert found.problems == ()
    assert found.limits == (
        Limit("github/*", "server", 3, sources=("scheduler",)),
        Limit(each="session", calls=20, seconds=60),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "calls = -1",
        "calls = true",
        "each = 'day'\ncalls = 1",
        "pattern = 'github'\ncalls = 1",
        "",
        "calls = 1\nbudget = 1",
        "call = 1",
        "calls = 1\nseconds = 0",
        "calls = 1\nseconds = inf",
        "calls = 1\nsources = ['moon']",
    ],
)
def test_invalid_limit_is_a_problem_with_its_line(wrong: str) -> None:
    found = read_limits_file(f"{LIMITS}\n[[limits]]\n{wrong}\n", "f")
    assert len(found.limits) == 2
    assert [(problem.code, problem.file, problem.line) for problem in found.problems] == [("limit.invalid", "f", 12)]


@pytest.mark.parametrize("text", ["limits = 3", "not [toml"])
def test_file_without_a_list_of_limits_is_a_problem(text: str) -> None:
    found = read_limits_file(text, "f")
    assert found.limits == ()
    assert len(found.problems) == 1
