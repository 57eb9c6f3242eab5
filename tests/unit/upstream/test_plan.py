"""The plan of connections: one for each wanted definition, without disturbing running ones."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.servers import Auth, DefinitionSource, ServerEntry, ServerSpec, ToolFilter
from toolcrib.servers.trust import definition_digest
from toolcrib.upstream.plan import ProjectPath, UpstreamKey, key_of, plan

FILES = st.sampled_from(["user.json", "project.json"])
NAMES = st.sampled_from(["a", "b", "c"])


def entry(spec: ServerSpec) -> ServerEntry:
    """Return a server that may be connected."""
    return ServerEntry(spec.name, spec.alias, spec.source, {}, spec, trusted=True, digest=definition_digest(spec))


@st.composite
def entries(draw: st.DrawFn) -> ServerEntry:
    """Draw a server; few differences make many of them equal."""
    spec = ServerSpec(
        draw(NAMES),
        "stdio",
        DefinitionSource("toolcrib", "user", draw(FILES), draw(st.integers(1, 3))),
        alias=draw(st.sampled_from(["x", "y", "z"])),
        command=draw(st.sampled_from(["one", "two"])),
        timeout_ms=draw(st.sampled_from([None, 1_000])),
        tools=draw(st.sampled_from([ToolFilter(), ToolFilter(deny=("x",))])),
        share=draw(st.sampled_from(["shared", "session"])),
    )
    return entry(spec)


PLACES = st.sampled_from([None, Path("/p"), Path("/q")])
WANTED = st.dictionaries(
    PLACES, st.lists(entries(), max_size=4).map(lambda found: {each.alias: each for each in found})
)


@given(WANTED, WANTED)
def test_plan_stops_unwanted_connections_and_starts_only_missing_ones(
    before: dict[ProjectPath, dict[str, ServerEntry]], after: dict[ProjectPath, dict[str, ServerEntry]]
) -> None:
    running = set(plan(before, ()).start)
    todo = plan(after, running)
    wanted = {key_of(each) for place in after.values() for each in place.values()}
    assert not set(todo.start) & running and set(todo.stop) <= running
    assert (running - set(todo.stop)) | set(todo.start) == wanted
    again = plan(after, wanted)
    assert not again.start and not again.stop


def test_only_changes_in_how_a_server_is_reached_need_another_connection() -> None:
    source = DefinitionSource("toolcrib", "user", "mcp.json", 3)
    spec = ServerSpec("a", "stdio", source, alias="a", command="one", args=("x",), env={"A": "1"})

    def key(**changes: object) -> UpstreamKey:
        return key_of(entry(replace(spec, **changes)))  # pyright: ignore[reportArgumentType] any field

    same: list[dict[str, object]] = [
        {"timeout_ms": 5_000},
        {"tools": ToolFilter(allow=())},
        {"alias": "b"},
        {"source": replace(source, line=9)},
        {"extra": {"note": 1}},
    ]
    other: list[dict[str, object]] = [
        {"command": "two"},
        {"args": ("y",)},
        {"env": {"A": "2"}},
        {"cwd": "/x"},
        {"type": "http", "url": "https://example.com"},
        {"headers": {"a": "b"}},
        {"share": "session"},
        {"auth": Auth(client_id="x")},
        {"name": "b"},
        {"source": replace(source, file="other.json")},
    ]
    assert all(key(**changes) == key() for changes in same)
    assert all(key(**changes) != key() for changes in other)
