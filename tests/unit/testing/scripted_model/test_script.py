"""The format of scripts, and the problems of invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject
from toolcrib.testing.scripted_model.script import (
    CHUNK,
    Raw,
    Refusal,
    Script,
    ScriptPace,
    Scripts,
    ScriptStep,
    TextStep,
    Thinking,
    ToolUse,
    read_scripts,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["blocks", "text", "tool", "input", "raw", "status", "hang_s", "chunk", "cut", "usage", "when", "steps"]
)

WRONG: list[tuple[Json, str]] = [
    ([], "`steps` is a list of at least one step"),
    ({"steps": "a"}, "`steps` is a list"),
    ({"step": []}, "there is no `step`; there are `steps`, `when`"),
    ({"when": "(", "steps": [{"hang_s": 1}]}, "`when` is a regular expression"),
    ({"when": 3, "steps": [{"hang_s": 1}]}, "`when` is a regular expression"),
    (["a"], "step 0: a step is an object"),
    ([{}], "step 0: a step has one of `blocks`, `status` and `hang_s`"),
    ([{"blocks": [{"text": "a"}], "status": 500}], "a step has one of"),
    ([{"hang_s": 1}, {"blok": []}], "step 1: there is no `blok`"),
    ([{"blocks": {}}], "`blocks` is a list"),
    ([{"blocks": [{"text": "a", "tool": "b"}]}], "block 0: a block has one of"),
    ([{"blocks": ["a"]}], "block 0: a block has one of"),
    ([{"blocks": [{"text": "a"}, {"text": 1}]}], "block 1: `text` is a text"),
    ([{"blocks": [{"text": "a", "input": {}}]}], "block 0: there is no `input`"),
    ([{"blocks": [{"tool": "t", "input": []}]}], "`input` is an object"),
    ([{"blocks": [{"raw": {}}]}], "`raw` is a block with a type"),
    ([{"status": 200}], "`status` is a number from 400 to 599"),
    ([{"status": True}], "`status` is a number from 400 to 599"),
    ([{"hang_s": -1}], "`hang_s` is a number from 0 on"),
    ([{"hang_s": float("inf")}], "`hang_s` is a number from 0 on"),
    ([{"blocks": [{"text": "a"}], "chunk": 0}], "`chunk` is a whole number above 0"),
    ([{"blocks": [{"text": "a"}], "cut": 1}], "`cut` is true or false"),
    ([{"blocks": [{"text": "a"}], "usage": 1}], "`usage` is an object"),
]


def read_steps(*steps: Json) -> Script:
    done = read_scripts({"s": list(steps)})
    assert done.problems == ()
    return done.scripts["s"]


def problem_of(value: Json) -> str:
    done = read_scripts({"s": value})
    assert not done.scripts
    (problem,) = done.problems
    assert problem.code == "script.invalid"
    return problem.message


def test_every_kind_of_block_is_read() -> None:
    (step,) = read_steps(
        {
            "blocks": [
                {"text": "a"},
                {"thinking": "b"},
                {"tool": "t", "input": {"x": 1}},
                {"tool": "u"},
                {"raw": {"type": "new"}},
            ]
        }
    ).steps
    assert step.blocks == (TextStep("a"), Thinking("b"), ToolUse("t", {"x": 1}), ToolUse("u", {}), Raw({"type": "new"}))
    assert step.pace == ScriptPace(0, CHUNK, 0, False)


def test_step_may_refuse_hang_or_be_slow() -> None:
    refused, plain, hung, slow = read_steps(
        {"status": 529, "error": "overloaded_error", "message": "Later."},
        {"status": 500},
        {"hang_s": 1.5},
        {
            "blocks": [{"text": "a"}],
            "delay_ms": 5,
            "chunk": 3,
            "chunk_delay_ms": 2.5,
            "cut": True,
            "stop_reason": "max_tokens",
        },
    ).steps
    assert refused.refusal == Refusal(529, "overloaded_error", "Later.")
    assert plain.refusal is not None
    assert (plain.refusal.status, plain.refusal.error) == (500, "api_error")
    assert hung == ScriptStep(hang_s=1.5)
    assert (slow.pace, slow.stop_reason) == (ScriptPace(5, 3, 2.5, True), "max_tokens")


def test_script_with_a_pattern_is_an_object() -> None:
    done = read_scripts({"s": {"when": "rain|snow", "steps": [{"blocks": [{"text": "a"}]}]}})
    assert done.scripts["s"].when is not None
    assert done.scripts["s"].when.search("Will it RAIN?")


@pytest.mark.parametrize(("value", "expected"), WRONG)
def test_invalid_script_is_a_problem_with_its_place(value: Json, expected: str) -> None:
    message = problem_of(value)
    assert message.startswith("Script `s`")
    assert expected in message


def test_invalid_script_does_not_affect_the_others() -> None:
    done = read_scripts({"good": [{"hang_s": 1}], "bad": [], "a name": [{"hang_s": 1}]})
    assert list(done.scripts) == ["good"]
    assert len(done.problems) == 2


@given(st.recursive(JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)))
def test_any_value_is_read_or_a_problem(value: Json) -> None:
    done = read_scripts({"s": value})
    assert len(done.scripts) + len(done.problems) == 1
    whole = read_scripts(value)
    assert isinstance(value, dict) or whole.problems


def test_scripts_are_added_read_and_removed_by_name() -> None:
    scripts = Scripts({"a": [{"hang_s": 1}]})
    scripts["b"] = {"steps": [{"hang_s": 2}]}
    scripts["c"] = scripts["a"]
    assert (list(scripts), len(scripts)) == (["a", "b", "c"], 3)
    assert scripts["c"].steps[0].hang_s == 1
    del scripts["a"]
    assert "a" not in scripts


@pytest.mark.parametrize("steps", [[], [{"blocks": [{"txt": "a"}]}], "a"])
def test_assigning_an_invalid_script_raises_an_error(steps: Json) -> None:
    scripts = Scripts()
    with pytest.raises(ConfigError) as caught:
        scripts["s"] = steps
    assert caught.value.code == "script.invalid"
    assert "Script `s`" in caught.value.message
    with pytest.raises(ConfigError):
        Scripts({"s": steps})
    assert len(scripts) == 0


def test_iteration_is_not_affected_by_added_scripts() -> None:
    one: list[JsonObject] = [{"hang_s": 1}]
    scripts = Scripts({"a": one, "b": one})
    seen: list[str] = []
    for name in scripts:
        scripts[f"{name}{name}"] = one
        seen.append(name)
    assert seen == ["a", "b"]
