"""Import and export of agents in the formats of other apps; hostile files do no harm."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.agents.zoo.check import new_agent
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.agents.zoo.transfer import LARGEST, Form, FoundAgent, read, write
from toolcrib.model.agents import Agent, BrainEntry, Skill
from toolcrib.model.json import Json, JsonObject

SUBAGENT = """---
name: code-reviewer
description: Reviews code. Use after every change.
tools: Read, Grep, Bash(git diff:*), mcp__github__create_issue, mcp__linear
model: sonnet
permissionMode: plan
color: red
---

You review code.

Look twice.
"""
SKILL = """---
name: pdf-forms
description: Fill PDF forms. Use when asked about PDFs.
allowed-tools: Read, Write
license: MIT
---
# PDF forms

Run the script.
"""
ZOO: list[JsonObject] = [
    {
        "id": "agent-1",
        "name": "Code Wizard",
        "description": "d",
        "systemPrompt": "You are concise.",
        "skillCategories": [{"id": "general", "name": "General", "color": "#61988E"}],
        "skills": [
            {"id": "ts", "name": "TS", "description": "Strict.", "categoryId": "general", "enabled": True},
            {"id": "x", "name": "X", "description": "Y", "categoryId": "lost", "enabled": False},
        ],
        "contextRefs": ["docs/"],
        "brainEntries": [
            {
                "id": "5f0c", "agentId": "agent-1", "type": "decision", "content": "Use Vite.",
                "timestamp": "2026-02-01T10:00:00.000Z", "pinned": True, "tags": ["build"],
                "metadata": {"source": "manual"},
            },
            {"id": "bad", "type": "dream", "content": "x"},
        ],
        "appearanceSeed": "seed-7",
        "mood": "happy",
    }
]  # fmt: skip


def only_agent(found: FoundAgent) -> AgentInput:
    (agent,) = found.agents
    return agent


def messages(found: FoundAgent) -> str:
    return "\n".join(problem.message for problem in found.problems)


def test_sub_agent_keeps_its_settings_and_restricted_tools_are_not_widened() -> None:
    found = read("agents/code-reviewer.md", SUBAGENT)
    agent = new_agent(only_agent(found), "code-reviewer")
    assert agent.name == agent.id == "code-reviewer"
    assert agent.system_prompt == "You review code.\n\nLook twice."
    assert (agent.model, agent.mode) == ("sonnet", "plan")
    assert agent.tool_permissions == ("claude_code/Read", "claude_code/Grep", "github/create_issue", "linear/*")
    assert "Bash(git diff:*)" in messages(found)


def test_sub_agent_without_a_tools_list_gets_the_default_tools() -> None:
    assert only_agent(read("a.md", "---\nname: a\nmodel: inherit\n---\nHi")).tool_permissions is None
    assert only_agent(read("a.md", "---\nname: a\ntools: []\n---\nHi")).tool_permissions == []


def test_front_matter_that_is_not_yaml_is_read_line_by_line() -> None:
    text = '---\nname: helper\ndescription: Use when: the user says "go": now\n  and more\n---\nBody'
    found = read("helper.md", text)
    assert only_agent(found).description == 'Use when: the user says "go": now and more'
    assert "line by line" in messages(found)


def test_skill_file_becomes_a_skill_with_its_tools() -> None:
    found = read("skills/pdf-forms/SKILL.md", SKILL)
    (skill,) = found.skills
    assert (skill.id, skill.name) == ("pdf-forms", "pdf-forms")
    assert skill.description == "Fill PDF forms. Use when asked about PDFs.\n\n# PDF forms\n\nRun the script."
    assert skill.tools == ["claude_code/Read", "claude_code/Write"]
    assert found.problems == ()


@pytest.mark.parametrize("whole", [ZOO, {"agents": ZOO}, {"agents": {"agent-1": ZOO[0]}}, ZOO[0]])
def test_agent_zoo_file_is_read_with_its_memory_and_reports_unknown_parts(whole: Json) -> None:
    found = read("agents.json", json.dumps(whole))
    agent = only_agent(found)
    assert (agent.id, agent.name, agent.appearance_seed) == ("agent-1", "Code Wizard", "seed-7")
    assert [entry.content for entry in agent.brain_entries] == ["Use Vite."]
    assert [skill.category_id for skill in new_agent(agent, "agent-1").skills] == ["general", "lost"]
    for word in ("mood", "missing category 'lost'", "brainEntries.1 was skipped"):
        assert word in messages(found)


def test_id_that_is_not_valid_in_a_url_is_converted() -> None:
    found = read("agents.json", '[{"id": "my agent/1", "name": "A"}]')
    assert only_agent(found).id == "my-agent-1"
    assert "became 'my-agent-1'" in messages(found)


def test_invalid_agent_is_a_problem_and_the_others_are_read() -> None:
    found = read("agents.json", '[{"name": ""}, 5, {"name": "Good"}, {"name": "B", "systemPrompt": 7}]')
    assert [agent.name for agent in found.agents] == ["Good"]
    assert [problem.code for problem in found.problems] == ["agent.unreadable"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "{", "[[", "null", "7", '"x"', "---\nname: x", "---\n---", "---\n- a\n---\nx",
        "[" * 100_000, '{"agents": 5}', "---\na: &a [*a]\n---\n", "---\n!!python/object:os.system {}\n---\n",
        "---\nname: [1, 2]\ntools: 5\nmodel: {}\n---\n\x00", '{"name": "\ud800"}', "\ufeff---\r\nname: x\r\n---\r\n",
        "x" * (LARGEST + 1),
    ],
)  # fmt: skip
def test_hostile_file_yields_problems_or_agents(text: str) -> None:
    found = read("some/file.md", text)
    assert found.problems or found.agents


@settings(max_examples=200)
@given(st.text(max_size=300), st.sampled_from(["a.md", "SKILL.md", "agents.json", ""]))
def test_reader_accepts_any_text(text: str, name: str) -> None:
    for candidate in (text, f"---\n{text}\n---\n{text}", f'{{"name": "a", {text}'):
        found = read(name, candidate)
        for agent in found.agents:
            assert agent.name


def test_invisible_characters_are_reported() -> None:
    found = read("a.md", "---\nname: a\n---\nBe nice.\u200b\U000e0041")
    assert "2 invisible characters" in messages(found)


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.id)
def test_exported_agent_is_read_back_unchanged(starter: Agent) -> None:
    entry = BrainEntry("e1", starter.id, "note", "x", "2026-01-01T00:00:00.000Z", True, ("t",), {"source": "mcp"})
    (file,) = write(starter, [entry], "json").files
    found = read(*file)
    assert found.problems == ()
    assert new_agent(only_agent(found), starter.id) == starter
    assert orjson.loads(file[1])[0]["brainEntries"] == [entry.to_json()]


def test_exported_sub_agent_is_read_back_with_its_skills_in_the_prompt() -> None:
    skill = Skill("s", "S", "Do it.", tools=("git/*",))
    agent = Agent(
        "x_y", "X: Y", 'Say "hi": now', "P", skills=(skill,), tool_permissions=("claude_code/Read", "files/read")
    )
    written = write(agent, (), "claude")
    ((path, text),) = written.files
    assert path == ".claude/agents/x-y.md"
    again = only_agent(read(path, text))
    assert again.description == 'Say "hi": now'
    assert again.system_prompt == "P\n\n---\n\n## Active Skills\n\n### S\nDo it."
    assert again.tool_permissions == ["claude_code/Read", "files/read", "git/*"]


def test_parts_that_a_sub_agent_file_cannot_hold_are_reported() -> None:
    problems = write(Agent("a", "A", tool_permissions=("*/read",), include_brain=True), (), "claude").problems
    words = " ".join(problem.message for problem in problems)
    assert "'*/read' has no name" in words
    assert "no tools" in words
    assert "Memory" in words


def test_exported_skills_are_read_back_from_one_file_each() -> None:
    skills = (
        Skill("a", "A", "One line.\n\nThe rest.\n\nMore."),
        Skill("b", "B", "x  y\nz", tools=("claude_code/Read",)),
    )
    written = write(Agent("x", "X", skills=skills), (), "skills")
    assert [path for path, _ in written.files] == ["a/SKILL.md", "b/SKILL.md"]
    (first,), (second,) = (read(path, text).skills for path, text in written.files)
    assert first.description == skills[0].description
    assert second.tools == ["claude_code/Read"]
    assert skills[1].description in second.description


@pytest.mark.parametrize("form", ["json", "claude", "skills"])
def test_paths_of_an_export_stay_in_its_folder(form: Form) -> None:
    skill = Skill("..", "..", "x")
    for path, _ in write(Agent("a", "..", skills=(skill,)), (), form).files:
        assert not path.startswith("/")
        assert ".." not in path.split("/")
