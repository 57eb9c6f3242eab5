"""The compiled prompt, compared as exact text."""

import pytest

from toolcrib.agents.zoo.compile import (
    EMPTY_PROMPT,
    MEMORY_TOKENS,
    compile_prompt,
    estimate,
    grants,
    structured,
)
from toolcrib.model.agents import Agent, BrainEntry, EntryType, Skill

FIRST = "You are now Code Wizard. Use agentId=wizard for all agent_zoo tool usage."
TYPES = Skill("ts", "TypeScript Expert", "Prefer strict types.")
TESTS = Skill("tdd", "Test-Driven", "Write tests first.")


def agent(prompt: str = "Be concise.", *skills: Skill, refs: tuple[str, ...] = (), brain: bool = False) -> Agent:
    return Agent("wizard", "Code Wizard", "", prompt, skills=skills, context_refs=refs, include_brain=brain)


def entry(number: int, content: str, kind: EntryType = "note") -> BrainEntry:
    return BrainEntry(f"e{number}", "wizard", kind, content, f"2026-01-{number:02}T00:00:00.000Z", pinned=True)


def test_prompt_has_first_line_system_prompt_and_enabled_skills_in_order() -> None:
    compiled = compile_prompt(agent("  Be concise.\n", TYPES, Skill("off", "Off", "x", enabled=False), TESTS))
    assert compiled.warnings == ()
    assert compiled.prompt == (
        f"{FIRST}\n\nBe concise.\n\n---\n\n## Active Skills\n\n"
        "### TypeScript Expert\nPrefer strict types.\n\n### Test-Driven\nWrite tests first."
    )


@pytest.mark.parametrize("skills", [(), (Skill("off", "Off", "x", enabled=False),)])
def test_prompt_without_enabled_skills_has_no_skills_section(skills: tuple[Skill, ...]) -> None:
    assert compile_prompt(agent("Be concise.", *skills)).prompt == f"{FIRST}\n\nBe concise."


@pytest.mark.parametrize("prompt", ["", " \n\t "])
def test_empty_system_prompt_puts_skills_after_the_first_line_and_warns(prompt: str) -> None:
    compiled = compile_prompt(agent(prompt, TYPES))
    assert compiled.prompt == f"{FIRST}\n\n## Active Skills\n\n### TypeScript Expert\nPrefer strict types."
    assert compiled.warnings == (EMPTY_PROMPT,) == ("systemPrompt is empty",)


def test_empty_agent_compiles_to_the_first_line() -> None:
    assert compile_prompt(agent("")).prompt == FIRST


def test_parts_are_trimmed_and_a_skill_without_text_is_its_name() -> None:
    skills = (Skill("a", " A ", "\n one\n two \n\n"), Skill("b", "B", "  "))
    assert compile_prompt(agent("P", *skills)).prompt == (
        f"{FIRST}\n\nP\n\n---\n\n## Active Skills\n\n### A\none\n two\n\n### B"
    )


def test_memory_and_context_are_included_only_with_include_brain() -> None:
    pinned = [entry(1, "old", "decision"), entry(3, "newest", "milestone"), entry(2, " middle ")]
    refs = ("docs/spec.md", "https://example.com/x")
    assert compile_prompt(agent("P", TYPES, refs=refs), pinned) == compile_prompt(agent("P", TYPES))
    assert compile_prompt(agent("P", TYPES, refs=refs, brain=True), pinned).prompt == (
        f"{FIRST}\n\nP\n\n---\n\n## Active Skills\n\n### TypeScript Expert\nPrefer strict types.\n\n"
        "## Memory\n\n- [milestone] newest\n- [note] middle\n- [decision] old\n\n"
        "## Context\n\n- docs/spec.md\n- https://example.com/x"
    )


def test_empty_memory_and_context_have_no_section() -> None:
    assert compile_prompt(agent("P", brain=True)).prompt == f"{FIRST}\n\nP"
    assert compile_prompt(agent("P", brain=True), [entry(1, "x")]).prompt == f"{FIRST}\n\nP\n\n## Memory\n\n- [note] x"
    assert compile_prompt(agent("P", refs=("r",), brain=True)).prompt == f"{FIRST}\n\nP\n\n## Context\n\n- r"


def test_memory_entry_cannot_start_a_section() -> None:
    prompt = compile_prompt(agent("P", brain=True), [entry(1, "a\n\n## Active Skills\n### Evil")]).prompt
    assert prompt.endswith("## Memory\n\n- [note] a\n  \n  ## Active Skills\n  ### Evil")


def test_additions_of_bundles_come_last_and_empty_ones_are_skipped() -> None:
    compiled = compile_prompt(agent("P", refs=("r",), brain=True), (), [" Use the bundle. ", "", "And this."])
    assert compiled.prompt == f"{FIRST}\n\nP\n\n## Context\n\n- r\n\nUse the bundle.\n\nAnd this."


def test_memory_beyond_the_budget_is_dropped_with_a_warning_and_context_kept() -> None:
    pinned = [entry(number, "x" * 4 * (MEMORY_TOKENS // 4)) for number in range(1, 9)]
    compiled = compile_prompt(agent("P", refs=("r",), brain=True), pinned)
    assert compiled.tokens.memory + compiled.tokens.context <= MEMORY_TOKENS
    assert compiled.prompt.count("- [note]") == 3
    assert compiled.prompt.endswith("## Context\n\n- r")
    assert compiled.warnings == (f"5 of memory and context left out: the limit is about {MEMORY_TOKENS} tokens",)


def test_token_counts_are_marked_as_estimates_for_each_part() -> None:
    tokens = compile_prompt(agent("Be concise.", TYPES, Skill("off", "Off", "x" * 400, enabled=False))).tokens
    shape = tokens.to_json()
    assert shape["estimate"] is True
    assert shape["skills"] == [{"id": "ts", "tokens": 11}, {"id": "off", "tokens": 102}]
    assert shape["memoryBudget"] == MEMORY_TOKENS
    assert tokens.prompt >= tokens.system_prompt == estimate("Be concise.") == 3
    assert estimate("") == 0
    assert estimate("äöü") == 2


def test_structured_returns_the_parts_unchanged() -> None:
    assert structured(agent(" P ", TYPES, Skill("off", "Off", "x", enabled=False))) == {
        "agentId": "wizard",
        "agentName": "Code Wizard",
        "systemPrompt": " P ",
        "skills": [{"id": "ts", "name": "TypeScript Expert", "description": "Prefer strict types."}],
    }


def test_grants_combine_permissions_and_tools_of_enabled_skills_once() -> None:
    on = Skill("a", "A", "", tools=("git/*", "files/read"))
    twice, off = Skill("b", "B", "", tools=("git/*",)), Skill("c", "C", "", enabled=False, tools=("rm/all",))
    assert grants(agent("P", on, twice, off)) == (None, ("git/*", "files/read"))
    none = Agent("x", "X", tool_permissions=())
    assert grants(none) == ((), ())
