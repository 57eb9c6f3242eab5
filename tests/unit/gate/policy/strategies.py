"""Hypothesis strategies for catalogs, principals, grants and rules."""

from hypothesis import strategies as st

from toolcrib.gate.policy.decide import Creator, Grants
from toolcrib.gate.policy.explain import ExplainQuery
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Condition, OriginKind, Rule, RuleEffect, RuleOrigin, Where
from toolcrib.model.principals import MODES, SOURCES, Mode, Principal, Source
from toolcrib.model.tools import Marks, Tool, ToolRef

PATTERNS = st.sampled_from(
    ["*", "a/*", "*/one", "a/one", "b/two", "c/*", "claude_code/*", "claude_code/Read", "?/t*", ""]
)
EFFECTS: list[RuleEffect] = ["allow", "ask", "deny"]
ORIGINS: list[OriginKind] = ["managed", "user", "project", "session", "remembered"]
REFS = [ToolRef(server, tool) for server in ("a", "b") for tool in ("one", "two")]
CODING = [ToolRef("claude_code", tool) for tool in ("Read", "Glob", "Edit", "Bash")]
TOUCHED = (
    (TouchedPath("/p/x"),),
    (TouchedPath("/p/x"), TouchedPath("/etc/x")),
    (TouchedPath("/p/.git/config"),),
)
ARGUMENTS: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 3), "text": st.sampled_from(["x", "xx", "y"])}
)


@st.composite
def tools(draw: st.DrawFn) -> Tool:
    marks = Marks(*(draw(st.booleans()) for _ in range(5)))
    return Tool(
        draw(st.sampled_from(REFS + CODING)), draw(st.sampled_from(["", "new"])), {"type": "object"}, marks=marks
    )


@st.composite
def principals(draw: st.DrawFn) -> Principal:
    return Principal(
        "session",
        "x",
        draw(st.sampled_from(SOURCES)),
        draw(st.sampled_from(MODES)),
        draw(st.sampled_from([None, "reviewer"])),
        draw(st.sampled_from([None, "s1", "s2"])),
        draw(st.sampled_from([None, "/p", "/p/sub", "/q"])),
        draw(st.booleans()),
    )


@st.composite
def own_grants(draw: st.DrawFn) -> Grants:
    some = st.lists(PATTERNS, max_size=2).map(tuple)
    return Grants(draw(st.none() | some), draw(some))


@st.composite
def any_grants(draw: st.DrawFn) -> Grants:
    own = draw(own_grants())
    if draw(st.integers(0, 3)):
        return own
    return Grants(own.permissions, own.bundles, Creator(draw(principals()), draw(own_grants())))


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Condition, ...]:
    some = [
        Condition("/n", "equals", 1),
        Condition("/n", "range", {"min": 2}),
        Condition("/text", "glob", "x*"),
        Condition("/text", "regex", "x+|y"),
    ]
    return tuple(draw(st.lists(st.sampled_from(some), max_size=2)))


@st.composite
def wheres(draw: st.DrawFn) -> Where:
    maybe = st.sampled_from([None, None, True, False])
    sources: tuple[Source, ...] = draw(st.sampled_from([(), (), ("ide",), ("scheduler", "web")]))
    modes: tuple[Mode, ...] = draw(st.sampled_from([(), (), ("default", "plan")]))
    agents = draw(st.sampled_from([(), (), ("reviewer",)]))
    projects = draw(st.sampled_from([(), (), ("/p",)]))
    return Where(draw(maybe), draw(maybe), draw(maybe), sources, agents, projects, modes)


@st.composite
def rule(draw: st.DrawFn, id: str) -> Rule:
    kind = draw(st.sampled_from(ORIGINS))
    plain = draw(st.booleans())
    return Rule(
        id,
        draw(st.sampled_from(EFFECTS)),
        draw(PATTERNS),
        RuleOrigin(kind),
        conditions=() if plain else draw(conditions()),
        where=Where() if plain else draw(wheres()),
        definition_hash=draw(st.sampled_from([None, None, None, "another"])),
        session="s1" if kind == "session" else None,
    )


@st.composite
def rule_sets(draw: st.DrawFn, most: int = 5) -> Rules:
    return Rules(1, tuple(draw(rule(f"r{number}")) for number in range(draw(st.integers(0, most)))))


@st.composite
def queries(draw: st.DrawFn) -> ExplainQuery:
    """Draw a query about a registered tool with a principal, grants, rules and perhaps arguments."""
    tool = draw(tools())
    arguments = draw(st.none() | ARGUMENTS)
    paths = draw(st.sampled_from([None, *TOUCHED])) if arguments is not None else None
    return ExplainQuery(tool.ref, tool, draw(principals()), draw(any_grants()), draw(rule_sets()), arguments, paths)
