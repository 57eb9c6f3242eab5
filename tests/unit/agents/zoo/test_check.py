"""What may stand in an agent, and what is told of what may not: each field by its place."""

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


def made(**fields: Any) -> Agent:
    return new_agent(parse(AgentInput, {"name": "A", **fields}), "a")


def refused(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as raised:
        made(**fields)
    assert raised.value.code == "agent.invalid"
    return {".".join(map(str, each.path)): each.message for each in raised.value.fields}


def skill(skill_id: str, *requires: str, enabled: bool = True) -> JsonObject:
    return {"id": skill_id, "name": skill_id, "enabled": enabled, "requires": list(requires)}


def test_what_is_left_out_is_filled_in() -> None:
    agent = made(skills=[{"name": "Type Safety!"}, {"name": "type safety"}])
    assert [each.id for each in agent.skills] == ["type-safety", "type-safety-2"]
    assert agent.skills[0].category_id == "general"
    assert agent.tool_permissions is None
    assert agent.to_json()["skillCategories"] == [{"id": "general", "name": "General", "color": "#61988E"}]


def test_an_agent_and_its_json_are_the_same() -> None:
    for starter in STARTERS:
        assert Agent.of_json(starter.to_json()) == starter
        assert new_agent(parse(AgentInput, starter.to_json()), starter.id) == starter


def test_the_starters_are_at_least_six_and_the_library_has_every_requirement() -> None:
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
def test_what_cannot_be_used_is_told_with_its_place(fields: JsonObject, path: str) -> None:
    assert path in refused(**fields)


def test_all_wrong_fields_are_told_at_once() -> None:
    assert set(refused(name="", mode="x", includeBrain=1)) == {"name", "mode", "includeBrain"}


def test_a_circle_of_skills_is_refused_with_its_way() -> None:
    skills = [skill("a", "b"), skill("b", "c"), skill("c", "a"), skill("d", "a")]
    assert refused(skills=skills)["skills.0.requires"] == "has a cycle: a → b → c → a"


def test_a_long_chain_of_skills_is_no_circle() -> None:
    skills = [skill(f"s{number}", f"s{number + 1}") for number in range(199)] + [skill("s199")]
    assert len(made(skills=skills).skills) == 200


def test_an_agent_that_is_too_large_in_all_is_refused() -> None:
    skills = [{"name": f"s{number}", "description": "x" * 60_000} for number in range(20)]
    assert "bytes, more than" in refused(skills=skills)[""]


def test_line_breaks_of_other_systems_become_ours() -> None:
    assert made(systemPrompt="a\r\nb\rc").system_prompt == "a\nb\nc"


def test_a_change_touches_only_what_it_names() -> None:
    agent = STARTERS[0]
    changed = changed_agent(agent, parse(AgentChanges, {"description": "New."}))
    assert changed.to_json() == agent.to_json() | {"description": "New."}
    assert changed_agent(agent, parse(AgentChanges, {})) == agent
    assert changed_agent(agent, parse(AgentChanges, {"toolPermissions": None})).tool_permissions is None
    assert changed_agent(agent, parse(AgentChanges, {"mode": None})).mode is None


def test_what_was_read_can_be_sent_back() -> None:
    agent = STARTERS[0]
    extra: JsonObject = {"version": 3, "createdAt": "x", "updatedAt": "x", "tokens": {}, "brainEntries": []}
    assert changed_agent(agent, parse(AgentChanges, agent.to_json() | extra)) == agent


def test_an_id_cannot_be_changed() -> None:
    with pytest.raises(InvalidFields, match="cannot be changed"):
        changed_agent(STARTERS[0], parse(AgentChanges, {"id": "other"}))


def test_removing_a_category_that_skills_use_is_refused_and_never_drops_skills() -> None:
    agent = made(skillCategories=[{"id": "c", "name": "C"}], skills=[{"name": "s", "categoryId": "c"}])
    with pytest.raises(InvalidFields, match=r"skills\.0\.categoryId"):
        changed_agent(agent, parse(AgentChanges, {"skillCategories": []}))


def test_switching_a_skill_on_switches_on_what_it_requires_and_off_is_refused_while_needed() -> None:
    agent = made(skills=[skill("a", "b", enabled=False), skill("b", "c", enabled=False), skill("c", enabled=False)])
    on = with_skill(agent, 0, {"enabled": True})
    assert [each.enabled for each in on.skills] == [True, True, True]
    with pytest.raises(InvalidFields, match="'b' is on and needs 'c'"):
        with_skill(on, 2, {"enabled": False})


@given(st.text(max_size=60), st.sets(st.text(max_size=60), max_size=5))
def test_a_free_id_is_never_taken(wanted: str, taken: set[str]) -> None:
    assert free_id(wanted, taken) not in taken


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from([*AgentInput.model_json_schema()["properties"], "other"])


@settings(max_examples=150)
@given(st.dictionaries(_KEYS, _JSON, max_size=5))
def test_any_json_is_an_agent_or_a_refusal(fields: JsonObject) -> None:
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
def test_moments_have_one_form(text: str, at: str) -> None:
    assert moment(text) == at
    assert parse(EntryInput, {"type": "note", "content": "x", "timestamp": text}).timestamp == at


def test_the_last_day_counts_whole() -> None:
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
def test_an_entry_that_cannot_be_used_is_told_with_its_place(entry: JsonObject, path: str) -> None:
    with pytest.raises(InvalidFields) as raised:
        parse(EntryInput, entry)
    assert path in [".".join(map(str, each.path)) for each in raised.value.fields]


def test_a_skill_takes_tools_as_patterns() -> None:
    assert parse(SkillInput, {"name": "x", "tools": ["git/*", "*", "a/b/c"]}).tools == ["git/*", "*", "a/b/c"]
