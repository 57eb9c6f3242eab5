"""Validation of agents and brain entries: each invalid field is reported with its path."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.agents.zoo.check import InvalidFields, changed_agent, free_id, new_agent, parse, with_skill
from toolcrib.agents.zoo.input import (
    LONGEST_PROMPT,
    AgentChanges,
    AgentInput,
    EntryInput,
    SkillInput,
    moment,
)
from toolcrib.agents.zoo.library import LIBRARY
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.model.agents import Agent
from toolcrib.model.json import JsonObject


def make_agent(**fields: Any) -> Agent:
    return new_agent(parse(AgentInput, {"name": "A", **fields}), "a")


def field_errors(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as raised:
        make_agent(**fields)
    assert raised.value.code == "agent.invalid"
    return {".".join(map(str, each.path)): each.message for each in raised.value.fields}


def skill(skill_id: str, *requires: str, enabled: bool = True) -> JsonObject:
    return {"id": skill_id, "name": skill_id, "enabled": enabled, "requires": list(requires)}


def test_missing_fields_get_defaults() -> None:
    agent = make_agent(skills=[{"name": "Type Safety!"}, {"name": "type safety"}])
    assert [each.id for each in agent.skills] == ["type-safety", "type-safety-2"]
    assert agent.skills[0].category_id == "general"
    assert agent.tool_permissions is None
    assert agent.to_json()["skillCategories"] == [{"id": "general", "name": "General", "color": "#61988E"}]


def test_agent_survives_a_round_trip_through_json() -> None:
    for starter in STARTERS:
        assert Agent.of_json(starter.to_json()) == starter
        assert new_agent(parse(AgentInput, starter.to_json()), starter.id) == starter


def test_starters_are_complete_and_the_library_has_all_requirements() -> None:
    assert len(STARTERS) >= 6
    assert len({starter.id for starter in STARTERS}) == len(STARTERS)
    known = {each.id for each in LIBRARY}
    assert all(set(each.requires) <= known for each in LIBRARY)
    assert all(starter.system_prompt and starter.description and starter.enabled_skills for starter in STARTERS)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": " \t "}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "bell\x07"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": 5}, "name"),
        ({"name": None}, "name"),
        ({"id": "no spaces"}, "id"),
        ({"id": "../etc"}, "id"),
        ({"id": "x" * 51}, "id"),
        ({"id": ""}, "id"),
        ({"systemPrompt": "x" * (LONGEST_PROMPT + 1)}, "systemPrompt"),
        ({"systemPrompt": "nul\0"}, "systemPrompt"),
        ({"systemPrompt": "escape\x1b[31m"}, "systemPrompt"),
        ({"systemPrompt": "half \ud800"}, "systemPrompt"),
        ({"systemPrompt": ["x"]}, "systemPrompt"),
        ({"appearanceSeed": 2**80}, "appearanceSeed.constrained-int"),
        ({"mode": "yolo"}, "mode"),
        ({"includeBrain": "yes"}, "includeBrain"),
        ({"toolPermissions": ["no slash"]}, "toolPermissions.0"),
        ({"toolPermissions": ["a/b", "/b"]}, "toolPermissions.1"),
        ({"contextRefs": ["a\nb"]}, "contextRefs.0"),
        ({"skillCategories": [{"name": "x", "color": "red"}]}, "skillCategories.0.color"),
        ({"skills": [{"description": "no name"}]}, "skills.0.name"),
        ({"skills": [{"name": "x", "categoryId": "nope"}]}, "skills.0.categoryId"),
        ({"skills": [skill("a"), skill("a")]}, "skills.1.id"),
        ({"skillCategories": [{"id": "c", "name": "C"}, {"id": "c", "name": "D"}]}, "skillCategories.1.id"),
        ({"skills": [skill("a", "b")]}, "skills.0.requires"),
        ({"skills": [skill("a", "a")]}, "skills.0.requires"),
        ({"skills": [skill("a", "b"), skill("b", enabled=False)]}, "skills.0.requires"),
        ({"skills": [{"name": "x", "colour": 1}]}, "skills.0.colour"),
        ({"unknown": 1}, "unknown"),
        ({"brainEntries": "broken"}, "brainEntries"),
    ],
)
def test_invalid_field_is_reported_with_its_path(fields: JsonObject, path: str) -> None:
    assert path in field_errors(**fields)


def test_all_invalid_fields_are_reported_at_once() -> None:
    assert set(field_errors(name="", mode="x", includeBrain=1)) == {"name", "mode", "includeBrain"}


def test_cycle_of_skills_is_rejected_with_its_path() -> None:
    skills = [skill("a", "b"), skill("b", "c"), skill("c", "a"), skill("d", "a")]
    assert field_errors(skills=skills)["skills.0.requires"] == "has a cycle: a → b → c → a"


def test_long_chain_of_skills_is_accepted() -> None:
    skills = [skill(f"s{number}", f"s{number + 1}") for number in range(199)] + [skill("s199")]
    assert len(make_agent(skills=skills).skills) == 200


def test_agent_that_is_too_large_in_total_is_rejected() -> None:
    skills = [{"name": f"s{number}", "description": "x" * 60_000} for number in range(20)]
    assert "bytes, more than" in field_errors(skills=skills)[""]


def test_line_breaks_are_normalised() -> None:
    assert make_agent(systemPrompt="a\r\nb\rc").system_prompt == "a\nb\nc"


def test_change_affects_only_the_given_fields() -> None:
    agent = STARTERS[0]
    changed = changed_agent(agent, parse(AgentChanges, {"description": "New."}))
    assert changed.to_json() == agent.to_json() | {"description": "New."}
    assert changed_agent(agent, parse(AgentChanges, {})) == agent
    assert changed_agent(agent, parse(AgentChanges, {"toolPermissions": None})).tool_permissions is None
    assert changed_agent(agent, parse(AgentChanges, {"mode": None})).mode is None


def test_fields_that_reads_add_are_accepted_in_changes() -> None:
    agent = STARTERS[0]
    extra: JsonObject = {"version": 3, "createdAt": "x", "updatedAt": "x", "tokens": {}, "brainEntries": []}
    assert changed_agent(agent, parse(AgentChanges, agent.to_json() | extra)) == agent


def test_id_cannot_be_changed() -> None:
    with pytest.raises(InvalidFields, match="cannot be changed"):
        changed_agent(STARTERS[0], parse(AgentChanges, {"id": "other"}))


def test_removing_a_category_in_use_is_rejected() -> None:
    agent = make_agent(skillCategories=[{"id": "c", "name": "C"}], skills=[{"name": "s", "categoryId": "c"}])
    with pytest.raises(InvalidFields, match=r"skills\.0\.categoryId"):
        changed_agent(agent, parse(AgentChanges, {"skillCategories": []}))


def test_enabling_a_skill_enables_its_requirements_which_cannot_be_disabled() -> None:
    agent = make_agent(
        skills=[skill("a", "b", enabled=False), skill("b", "c", enabled=False), skill("c", enabled=False)]
    )
    on = with_skill(agent, 0, {"enabled": True})
    assert [each.enabled for each in on.skills] == [True, True, True]
    with pytest.raises(InvalidFields, match="'b' is on and needs 'c'"):
        with_skill(on, 2, {"enabled": False})


@given(st.text(max_size=60), st.sets(st.text(max_size=60), max_size=5))
def test_free_id_is_never_taken(wanted: str, taken: set[str]) -> None:
    assert free_id(wanted, taken) not in taken


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from([*AgentInput.model_json_schema()["properties"], "other"])


@settings(max_examples=150)
@given(st.dictionaries(_KEYS, _JSON, max_size=5))
def test_any_json_is_an_agent_or_rejected(fields: JsonObject) -> None:
    try:
        agent = new_agent(parse(AgentInput, fields), "a")
    except InvalidFields as error:
        assert error.fields
    else:
        assert Agent.of_json(agent.to_json()) == agent


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000Z"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500Z"),
    ],
)
def test_timestamps_are_normalised(text: str, at: str) -> None:
    assert moment(text) == at
    assert parse(EntryInput, {"type": "note", "content": "x", "timestamp": text}).timestamp == at


def test_end_of_day_includes_the_whole_day() -> None:
    assert moment("2026-01-31", end_of_day=True) == "2026-01-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"type": "note", "content": ""}, "content"),
        ({"type": "dream", "content": "x"}, "type"),
        ({"content": "x"}, "type"),
        ({"type": "note", "content": "x", "timestamp": "yesterday"}, "timestamp"),
        ({"type": "note", "content": "x", "tags": "a,b"}, "tags"),
        ({"type": "note", "content": "x", "metadata": {"source": "web"}}, "metadata.source"),
    ],
)
def test_invalid_entry_is_reported_with_its_path(entry: JsonObject, path: str) -> None:
    with pytest.raises(InvalidFields) as raised:
        parse(EntryInput, entry)
    assert path in [".".join(map(str, each.path)) for each in raised.value.fields]


def test_skill_accepts_tool_patterns() -> None:
    assert parse(SkillInput, {"name": "x", "tools": ["git/*", "*", "a/b/c"]}).tools == ["git/*", "*", "a/b/c"]
