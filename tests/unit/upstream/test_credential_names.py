"""Which sign-in a definition can use: its own, and a named one only in the user's own files."""

from dataclasses import replace

import pytest

from toolcrib.model.servers import Auth, DefinitionSource, ServerSpec
from toolcrib.upstream.credentials import credential_name, former_name

PERSONAL = DefinitionSource("cursor", "user", "/h/.cursor/mcp.json")
ONE = DefinitionSource("claude-code", "project", "/one/.mcp.json", 1, "/one", "/one")
TWO = replace(ONE, file="/two/.mcp.json", project="/two", directory="/two")
SPEC = ServerSpec("docs", "http", PERSONAL, alias="docs", url="https://docs.example/mcp")
NAMED = Auth(credential_id="github")


def test_users_definitions_can_share_a_named_sign_in() -> None:
    program = replace(SPEC, type="stdio", command="x", url=None)
    assert {credential_name(replace(each, auth=NAMED)) for each in (SPEC, program)} == {"github"}


@pytest.mark.parametrize("type_", ["http", "stdio"])
def test_project_cannot_use_a_named_sign_in(type_: str) -> None:
    own = replace(SPEC, source=ONE, auth=NAMED, type=type_, command="x")
    assert credential_name(own) not in ("github", "docs", credential_name(SPEC))
    assert former_name(own) is None


def test_sign_ins_are_bound_to_the_place_and_the_address() -> None:
    specs = [
        SPEC,
        replace(SPEC, url="https://other.example/mcp"),
        replace(SPEC, source=ONE),
        replace(SPEC, source=TWO),
        replace(SPEC, source=ONE, url="https://other.example/mcp"),
    ]
    assert len({credential_name(spec) for spec in specs}) == len(specs)
    assert credential_name(replace(SPEC, alias="docs_1a2b3c")) == credential_name(SPEC)


def test_sign_in_of_an_earlier_version_is_found_by_the_alias() -> None:
    assert former_name(SPEC) == "docs"
    assert former_name(replace(SPEC, auth=NAMED)) is None
