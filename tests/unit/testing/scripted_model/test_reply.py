"""Replies of the scripted model, which depend only on the request."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import Json, JsonObject
from toolcrib.testing.scripted_model.reply import ScriptPosition, locate, reply
from toolcrib.testing.scripted_model.script import Scripts
from toolcrib.testing.scripted_model.server import StreamEvent, stream_events

ONE: list[JsonObject] = [{"blocks": [{"text": "one"}]}, {"blocks": [{"text": "two"}]}]
SCRIPTS = Scripts({"a": ONE, "b": ONE, "rain": {"when": r"\brain\b", "steps": ONE}})
WITH_DEFAULT = Scripts({**SCRIPTS, "default": ONE})

TEXTS = st.sampled_from(
    ["hello", "will it rain?", "[[script:a]]", "go [[script:b]] on", "[[script:none]]", "<system-reminder>rain", ""]
)
BLOCKS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "content": TEXTS | st.lists(st.just({"type": "text"}))}),
    st.none() | st.integers() | st.text(max_size=3),
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXTS | st.lists(BLOCKS, max_size=3)}
    )
    | st.none()
    | st.text(max_size=3),
    max_size=8,
)
REQUESTS = st.fixed_dictionaries(
    {"messages": MESSAGES | st.none() | st.text(), "model": st.just("m")},
    optional={"tools": st.lists(st.fixed_dictionaries({"name": st.text()}) | st.integers(), max_size=3) | st.none()},
)
ANY_BLOCKS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"text": st.text()}),
        st.fixed_dictionaries({"thinking": st.text()}),
        st.fixed_dictionaries(
            {"tool": st.text(min_size=1), "input": st.dictionaries(st.text(), st.text() | st.integers())}
        ),
        st.just({"raw": {"type": "server_tool_use", "id": "x", "name": "y", "input": {"q": 1}}}),
    ),
    min_size=1,
    max_size=4,
)


def user(text: Json) -> JsonObject:
    return {"role": "user", "content": text}


ANSWER: JsonObject = {"role": "assistant", "content": "…"}
RESULT = user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "pong"}]}])
NOTE = user([{"type": "text", "text": "<system-reminder>\nIt may rain.\n</system-reminder>"}])


def first_text(request: JsonObject, scripts: Scripts = SCRIPTS) -> str:
    message = reply(scripts, request).message
    assert message is not None
    return message["content"][0]["text"]


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([user("[[script:a]]")], ScriptPosition("a", 0)),
        ([user("[[script:a]]"), ANSWER], ScriptPosition("a", 1)),
        ([user("[[script:a]]"), ANSWER, RESULT, ANSWER, RESULT], ScriptPosition("a", 2)),
        ([user("[[script:a]]"), ANSWER, user("go on")], ScriptPosition("a", 1)),
        ([user("[[script:a]]"), ANSWER, user("[[script:b]]")], ScriptPosition("b", 0)),
        (
            [user([{"type": "text", "text": "[[script:a]]"}, {"type": "text", "text": "[[script:b]]"}])],
            ScriptPosition("b", 0),
        ),
        ([user("[[script:a]]"), ANSWER, user("will it rain?")], ScriptPosition("rain", 0)),
        ([user("will it rain?"), ANSWER, RESULT], ScriptPosition("rain", 1)),
        ([user("will it rain?"), ANSWER, RESULT, NOTE], ScriptPosition("rain", 1)),
        ([user("will it rain?"), ANSWER, user("[[script:a]]"), NOTE], ScriptPosition("a", 0)),
        ([user("rain [[script:a]]")], ScriptPosition("a", 0)),
        ([user("will it train?")], ScriptPosition(None, 0)),
        ([user("[[script:none]]")], ScriptPosition("none", 0)),
        ([{"role": "system", "content": "[[script:a]]"}, RESULT], ScriptPosition(None, 0)),
        ([], ScriptPosition(None, 0)),
    ],
)
def test_newest_prompt_selects_the_script_and_earlier_answers_the_step(
    messages: list[JsonObject], place: ScriptPosition
) -> None:
    assert locate(messages, SCRIPTS) == place


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([user("hello")], ScriptPosition("default", 0)),
        ([user("[[script:a]]"), ANSWER, user("hello")], ScriptPosition("default", 0)),
        ([user("will it rain?"), ANSWER, user("thanks"), ANSWER, RESULT, NOTE], ScriptPosition("default", 1)),
        ([user("will it rain?")], ScriptPosition("rain", 0)),
        ([user("hello [[script:a]]")], ScriptPosition("a", 0)),
        ([NOTE], ScriptPosition(None, 0)),
    ],
)
def test_default_script_answers_prompts_without_another_script(
    messages: list[JsonObject], place: ScriptPosition
) -> None:
    assert locate(messages, WITH_DEFAULT) == place


@given(REQUESTS)
def test_same_request_has_the_same_answer_and_is_not_modified(request: JsonObject) -> None:
    before = copy.deepcopy(request)
    first = reply(WITH_DEFAULT, request)
    assert request == before
    assert reply(Scripts(dict(WITH_DEFAULT)), before) == first


@given(MESSAGES, st.integers(1, 3))
def test_each_answer_advances_the_script_by_one_step(messages: list[Json], more: int) -> None:
    place = locate(messages, WITH_DEFAULT)
    after = locate([*messages, *([ANSWER, RESULT] * more)], WITH_DEFAULT)
    assert after == ScriptPosition(place.script, place.step + more if place.script is not None else 0)


def test_last_step_repeats() -> None:
    messages = [user("[[script:a]]")]
    texts: list[str] = []
    for _ in range(4):
        texts.append(first_text({"messages": messages}))
        messages.append(ANSWER)
    assert texts == ["one", "two", "two", "two"]


def test_prompt_without_a_script_is_answered_and_an_unknown_script_rejected() -> None:
    assert first_text({"messages": [user("Give it a title.")]}) == "ok"
    refused = reply(SCRIPTS, {"messages": [user("[[script:none]]")]})
    assert refused.message is None
    assert refused.step.refusal is not None
    assert refused.step.refusal.status == 400
    assert "`none`" in refused.step.refusal.message


def test_templates_are_filled_once_and_unknown_ones_kept() -> None:
    text = "{{last_tool_result}} {{n_tools}} {{model}} {{other}}"
    scripts = Scripts({"s": [{"blocks": [{"text": text}]}]})
    result = user([{"type": "tool_result", "content": "{{model}}"}])
    request: JsonObject = {
        "model": "m",
        "messages": [user("[[script:s]]"), ANSWER, result],
        "tools": [{"name": "a"}, {"name": "b"}],
    }
    assert first_text(request, scripts) == "{{model}} 2 m {{other}}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("pong", "pong"),
        ([{"type": "text", "text": "pong"}, {"type": "text", "text": "ping"}], "pong\nping"),
        ([{"type": "text", "text": "a"}, {"type": "image"}], '[{"type": "text", "text": "a"}, {"type": "image"}]'),
        ("pong\n\n<system-reminder>\nBe brief.\n</system-reminder>", "pong"),
        ("x" * 1000, "x" * 400),
    ],
)
def test_last_tool_result_is_inserted_without_the_runtimes_additions(content: Json, expected: str) -> None:
    scripts = Scripts({"s": [{"blocks": [{"text": "{{last_tool_result}}"}]}]})
    result = user([{"type": "tool_result", "content": content}])
    assert first_text({"messages": [user("[[script:s]]"), ANSWER, result]}, scripts) == expected


def test_tool_call_stops_the_turn_and_has_a_unique_id() -> None:
    scripts = Scripts({"s": [{"blocks": [{"tool": "t"}, {"tool": "t"}]}], "end": [{"blocks": [{"text": "a"}]}]})
    ids: list[str] = []
    for number in range(3):
        message = reply(scripts, {"messages": [user("[[script:s]]")], "metadata": {"user_id": number}}).message
        assert message is not None
        assert message["stop_reason"] == "tool_use"
        ids += [block["id"] for block in message["content"]]
    assert len(set(ids)) == 6
    ended = reply(scripts, {"messages": [user("[[script:end]]")]}).message
    assert ended is not None
    assert ended["stop_reason"] == "end_turn"


def test_stop_reason_and_usage_can_be_set() -> None:
    step: JsonObject = {"blocks": [{"text": "a"}], "stop_reason": "max_tokens", "usage": {"output_tokens": 99}}
    message = reply(Scripts({"s": [step]}), {"messages": [user("[[script:s]]")]}).message
    assert message is not None
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == 99
    assert message["usage"]["input_tokens"] == 10


def reassemble(events: list[StreamEvent]) -> JsonObject:
    """Return the message that a client assembles from the events."""
    message: JsonObject = {}
    partial: dict[int, str] = {}
    for kind, data in events:
        assert data["type"] == kind
        match kind:
            case "message_start":
                message = copy.deepcopy(data["message"])
            case "content_block_start":
                assert data["index"] == len(message["content"])
                message["content"].append(copy.deepcopy(data["content_block"]))
            case "content_block_delta":
                block, delta = message["content"][data["index"]], data["delta"]
                match delta["type"]:
                    case "input_json_delta":
                        partial[data["index"]] = partial.get(data["index"], "") + delta["partial_json"]
                    case named:
                        field = named.removesuffix("_delta")
                        block[field] += delta[field]
            case "content_block_stop":
                if data["index"] in partial:
                    message["content"][data["index"]]["input"] = json.loads(partial[data["index"]])
            case "message_delta":
                message |= data["delta"]
                message["usage"] = data["usage"]
            case _:
                assert kind == "message_stop"
    return message


@given(ANY_BLOCKS, st.integers(1, 30))
def test_streamed_events_add_up_to_the_whole_message(blocks: list[JsonObject], chunk: int) -> None:
    whole = reply(Scripts({"s": [{"blocks": blocks}]}), {"model": "m", "messages": [user("[[script:s]]")]}).message
    assert whole is not None
    events = list(stream_events(whole, chunk))
    assert reassemble(events) == whole
    assert [event.kind for event in events][-2:] == ["message_delta", "message_stop"]
    for event in events:
        line = event.encode().decode()
        assert line.startswith(f"event: {event.kind}\ndata: {{") and line.endswith("\n\n") and line.count("\n") == 3
        assert json.loads(line.split("data: ", 1)[1]) == event.data
    texts = [event.data["delta"]["text"] for event in events if event.data.get("delta", {}).get("type") == "text_delta"]
    assert all(0 < len(text) <= chunk for text in texts)
