"""Which sign-in a definition can reach: its own, and in the person's files the one that is named."""

from dataclasses import replace

import pytest

from toolcrib.model.servers import Auth, DefinitionSource, ServerSpec
from toolcrib.upstream.credentials import credential_name, former_name

PERSONAL = DefinitionSource("cursor", "user", "/h/.cursor/mcp.json")
ONE = DefinitionSource("claude-code", "project", "/one/.mcp.json", 1, "/one", "/one")
TWO = replace(ONE, file="/two/.mcp.json", project="/two", directory="/two")
SPEC = ServerSpec("docs", "http", PERSONAL, alias="docs", url="https://docs.example/mcp")
NAMED = Auth(credential_id="github")


def test_a_person_names_a_sign_in_that_definitions_share() -> None:
    program = replace(SPEC, type="stdio", command="x", url=None)
    assert {credential_name(replace(each, auth=NAMED)) for each in (SPEC, program)} == {"github"}


@pytest.mark.parametrize("type_", ["http", "stdio"])
def test_a_project_cannot_name_a_sign_in_that_was_not_made_for_it(type_: str) -> None:
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


def test_a_sign_in_of_an_earlier_version_is_found_by_the_alias() -> None:
    assert former_name(SPEC) == "docs"
    assert former_name(replace(SPEC, auth=NAMED)) is None
