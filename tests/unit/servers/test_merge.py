"""Trust decides before priority: an untrusted file has no effect on a trusted server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.files.reading import FileText
from toolcrib.model.servers import Discovery, OtherName, ServerEntry, ServerSpec
from toolcrib.servers.discover import merge
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import ConfigFile, FileReading, read_content

PROD = {"command": "prod-server"}
NOTES = {"command": "notes-server"}
OWN = ConfigFile("toolcrib", "user", Path("/h/.crib/mcp.json"), 0)
CURSOR = ConfigFile("cursor", "user", Path("/h/.cursor/mcp.json"), 5)
PROJECT = ConfigFile("claude-code", "project", Path("/r/.mcp.json"), 3, Path("/r"), Path("/r"))
OPENCODE = ConfigFile("opencode", "user", Path("/h/opencode.json"), 14)
OPENCODE_PROJECT = ConfigFile("opencode", "project", Path("/r/opencode.json"), 14, Path("/r"), Path("/r"))
GEMINI = ConfigFile("gemini", "user", Path("/h/.gemini/settings.json"), 12)
GEMINI_PROJECT = ConfigFile("gemini", "project", Path("/r/.gemini/settings.json"), 12, Path("/r"), Path("/r"))

Trusts = Callable[[ServerSpec], bool]


def make_reading(place: ConfigFile, entries: dict[str, Any], **more: Any) -> FileReading:
    root: Any = entries
    for key in reversed(place.dialect.roots[0]):
        root = {key: root}
    return read_content(place, FileText(json.dumps(root | more), False, ""), ReadingContext(place.file))


def trust_only_the_users(spec: ServerSpec) -> bool:
    """Trust all definitions of the user and none of a project."""
    return spec.source.project is None


def trust_everything(_: ServerSpec) -> bool:
    return True


def merge_files(*readings: FileReading, trusted: Trusts = trust_only_the_users) -> Discovery:
    return merge(readings, {}, trusted)


def entry(found: Discovery, alias: str) -> ServerEntry:
    return next(each for each in found.servers if each.alias == alias)


def test_untrusted_project_cannot_rename_a_trusted_server() -> None:
    found = merge_files(make_reading(CURSOR, {"prod": PROD}), make_reading(PROJECT, {"harmless": PROD}))
    server = entry(found, "prod")
    assert [each.alias for each in found.servers] == ["prod"]
    assert (server.trusted, server.source.file, server.same_as) == (True, "/h/.cursor/mcp.json", ("harmless",))
    assert server.names.trusted == ()
    assert server.names.claimed == (OtherName("harmless", "/r/.mcp.json"),)
    assert found.find("harmless") is server


def test_untrusted_project_cannot_take_the_name_of_a_trusted_server() -> None:
    found = merge_files(make_reading(CURSOR, {"notes": NOTES, "prod": PROD}), make_reading(PROJECT, {"notes": PROD}))
    assert entry(found, "notes").spec == entry(merge_files(make_reading(CURSOR, {"notes": NOTES})), "notes").spec
    assert entry(found, "prod").names.others == ()
    shadowed = next(each for each in found.servers if each.source.project is not None)
    assert (shadowed.state, shadowed.shadowed_by) == ("shadowed", "notes")
    assert shadowed.alias.startswith("notes_")


def test_trusted_second_name_is_not_assigned_to_an_untrusted_entry() -> None:
    found = merge_files(
        make_reading(OWN, {"prod": PROD}),
        make_reading(CURSOR, {"production": PROD}),
        make_reading(PROJECT, {"production": NOTES}),
    )
    assert entry(found, "prod").names.trusted == (OtherName("production", "/h/.cursor/mcp.json"),)
    untrusted = next(each for each in found.servers if each.source.project is not None)
    assert untrusted.alias != "production"
    assert untrusted.state == "shadowed"
    assert found.find("production") is entry(found, "prod")


@pytest.mark.parametrize("name", ["prod", "harmless"])
def test_untrusted_entry_never_enables_a_disabled_server(name: str) -> None:
    found = merge_files(make_reading(OWN, {"prod": PROD | {"enabled": False}}), make_reading(PROJECT, {name: PROD}))
    assert entry(found, "prod").state == "disabled"
    assert found.startable() == ()


@pytest.mark.parametrize(
    "project_settings",
    [
        make_reading(GEMINI_PROJECT, {}, mcp={"excluded": ["prod"]}),
        make_reading(GEMINI_PROJECT, {}, mcp={"allowed": []}),
        make_reading(OPENCODE_PROJECT, {"prod": {"enabled": False}}),
        make_reading(PROJECT, {"prod": PROD | {"disabled": True}}),
    ],
)
def test_project_cannot_disable_a_trusted_server(project_settings: FileReading) -> None:
    place = GEMINI if project_settings.place.format == "gemini" else OPENCODE
    definition = PROD if place is GEMINI else {"type": "local", "command": ["prod-server"]}
    found = merge_files(make_reading(place, {"prod": definition}), project_settings)
    assert entry(found, "prod").startable


def test_project_can_disable_its_own_servers() -> None:
    found = merge_files(
        make_reading(GEMINI_PROJECT, {"prod": PROD}, mcp={"excluded": ["prod"]}), trusted=trust_everything
    )
    assert entry(found, "prod").state == "disabled"


@pytest.mark.parametrize("change", [{"environment": {"X": "1"}}, {"command": 5}, {"timeout": 1}])
def test_project_overlay_of_a_users_entry_may_only_switch_it(change: dict[str, Any]) -> None:
    own = make_reading(OPENCODE, {"prod": {"type": "local", "command": ["prod-server"]}})
    found = merge_files(own, make_reading(OPENCODE_PROJECT, {"prod": change}), trusted=trust_everything)
    assert entry(found, "prod").source.project is None
    overlay = next(each for each in found.servers if each.source.project is not None)
    assert overlay.state == "invalid"
    assert "/h/opencode.json" in overlay.problems[0].message


def test_trusted_project_shadows_by_name_and_the_user_names_equal_servers() -> None:
    """The nearest directory wins; the main name comes from the most trusted place."""
    found = merge_files(
        make_reading(CURSOR, {"db": NOTES, "prod": PROD}),
        make_reading(PROJECT, {"db": PROD | {"args": ["x"]}, "live": PROD}),
        trusted=trust_everything,
    )
    assert entry(found, "db").source.project == "/r"
    assert entry(found, "prod").names.trusted == (OtherName("live", "/r/.mcp.json"),)


@pytest.mark.parametrize("name", ["toolcrib", "claude_code"])
def test_reserved_name_is_not_a_trusted_name(name: str) -> None:
    """Otherwise a rule for the crib's own tools would apply to a server with their name."""
    found = merge_files(make_reading(CURSOR, {name: PROD}))
    names = found.servers[0].names
    assert found.servers[0].alias != name
    assert (names.trusted, names.claimed) == ((), (OtherName(name, "/h/.cursor/mcp.json"),))


NAMES = st.sampled_from(["a", "b", "a b", "toolcrib", "A"])
DEFINITIONS = st.sampled_from([PROD, NOTES, PROD | {"enabled": False}, {"url": "https://h/p"}, {"command": ""}])
ENTRIES = st.dictionaries(NAMES, DEFINITIONS, max_size=4)


@settings(deadline=None)
@given(ENTRIES, ENTRIES, ENTRIES)
def test_untrusted_project_does_not_affect_trusted_servers(
    own: dict[str, Any], cursor: dict[str, Any], project: dict[str, Any]
) -> None:
    """Each trusted server keeps its alias, state, definition and trusted names."""
    files = (make_reading(OWN, own), make_reading(CURSOR, cursor))
    alone, with_project = merge_files(*files), merge_files(*files, make_reading(PROJECT, project))
    kept = {each.alias: each for each in with_project.servers}
    for before in alone.servers:
        if not before.trusted:
            continue
        after = kept[before.alias]
        assert (after.spec, after.state, after.source) == (before.spec, before.state, before.source)
        assert after.names.trusted == before.names.trusted
    assert {each.alias for each in with_project.startable()} == {each.alias for each in alone.startable()}


def test_remembered_answer_is_bound_to_the_directory_of_a_projects_program() -> None:
    """`node server.js` is another program in another project."""
    other = ConfigFile("claude-code", "project", Path("/q/.mcp.json"), 3, Path("/q"), Path("/q"))
    entries = {"s": {"command": "node", "args": ["server.js"]}, "web": {"type": "http", "url": "https://h/p"}}
    one, two = (merge_files(make_reading(place, entries), trusted=trust_everything) for place in (PROJECT, other))
    assert entry(one, "s").names.identity == entry(two, "s").names.identity
    assert entry(one, "s").names.bound != entry(two, "s").names.bound
    assert entry(one, "web").names == entry(two, "web").names
