"""Large results: stored for their caller, shortened for the client, and readable by handle."""

import json

import pytest

from toolcrib.gate.results.fitting import FittedResult, ResultBudget, shape
from toolcrib.gate.results.kept import KEPT_FOR, MOST_BYTES, KeptResults
from toolcrib.gate.results.reading import read_kept
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Tool, ToolRef

CALLER = Principal("token", "ann", "ide")
OTHER = Principal("token", "bob", "ide")
TOOL = Tool(ToolRef("s", "t"), "", {})
LINES = "\n".join(f"line {number}" for number in range(1, 2_001))


def fit(result: CallResult, kept: KeptResults, tool: Tool = TOOL, *, takes_links: bool = False) -> FittedResult:
    return ResultBudget(1_000, "Read on.", takes_links).fit(kept, CALLER, tool, result)


def text_of(result: CallResult) -> str:
    return str(result.content[0]["text"])


def handle_in(result: CallResult) -> str:
    return text_of(result).partition("Handle: ")[2].partition(".")[0]


def test_small_result_is_unchanged_and_has_no_digest() -> None:
    result = CallResult.text("short")
    assert fit(result, KeptResults()) == (result, None)


def test_large_text_becomes_head_tail_size_and_handle() -> None:
    kept = KeptResults()
    result, digest = fit(CallResult.text(LINES, is_error=True), kept, takes_links=True)
    assert result.is_error
    assert digest is not None
    assert "2,000 lines" in text_of(result)
    assert "line 1\n" in text_of(result)
    assert text_of(result).endswith("line 2000")
    whole = kept.get(CALLER, handle_in(result))
    assert whole is not None
    assert whole.text == LINES
    assert result.content[1]["uri"] == whole.uri()


def test_only_the_caller_reads_a_result_and_only_until_it_expires() -> None:
    now = [0.0]
    kept = KeptResults(lambda: now[0])
    whole = kept.keep(CALLER, LINES, ())
    assert kept.get(OTHER, whole.handle) is None
    assert kept.resource(OTHER, whole.uri()) is None
    assert (kept.is_read_by(CALLER), kept.is_read_by(OTHER)) == (True, False)
    now[0] = KEPT_FOR + 1
    assert kept.get(CALLER, whole.handle) is None
    assert not kept.is_read_by(CALLER)


def test_oldest_results_are_dropped_when_memory_runs_out() -> None:
    kept = KeptResults()
    first = kept.keep(CALLER, "x" * (MOST_BYTES // 2), ())
    second = kept.keep(CALLER, "y" * (MOST_BYTES // 2 + 1), ())
    assert kept.get(CALLER, first.handle) is None
    assert kept.get(CALLER, second.handle) is not None


def test_structured_content_is_kept_only_if_the_tool_has_an_output_schema() -> None:
    value: JsonObject = {"items": list(range(3_000))}
    whole = CallResult(({"type": "text", "text": json.dumps(value)},), False, value, True)
    promised = Tool(ToolRef("s", "t"), "", {}, output_schema={"type": "object"})
    assert fit(whole, KeptResults(), promised).result.structured_content == value
    plain = fit(whole, KeptResults()).result
    assert not plain.has_structured
    assert "[Shape: {'items': [3,000 × int]}]" in text_of(plain)
    only_structured = fit(CallResult((), False, value, True), KeptResults()).result
    assert "3,000 × int" in text_of(only_structured)


@pytest.mark.parametrize("takes_links", [True, False])
def test_large_binary_part_becomes_a_resource_and_a_small_one_is_kept(takes_links: bool) -> None:
    kept = KeptResults()
    large: JsonObject = {"type": "image", "mimeType": "image/png", "data": "A" * 8_000}
    small: JsonObject = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    result, _ = fit(CallResult((small, large)), kept, takes_links=takes_links)
    assert result.content[0] == small
    link = result.content[1]
    assert link["type"] == ("resource_link" if takes_links else "text")
    uri = link["uri"] if takes_links else link["text"].split()[-1].rstrip("]")
    contents = kept.resource(CALLER, uri)
    assert contents is not None
    assert contents["blob"] == large["data"]
    assert kept.resource(CALLER, f"{uri}9") is None


def test_kept_binary_part_is_unchanged_while_the_text_is_shortened() -> None:
    kept, budget = KeptResults(), ResultBudget(1_000, "Read on.", takes_links=False, keeps_blobs=True)
    image: JsonObject = {"type": "image", "mimeType": "image/png", "data": "A" * 8_000}
    alone = CallResult((image,))
    assert budget.fit(kept, CALLER, TOOL, alone) == FittedResult(alone)
    fitted, digest = budget.fit(kept, CALLER, TOOL, CallResult(({"type": "text", "text": "x" * 8_000}, image)))
    assert fitted.content[1] == image
    assert "Read on." in fitted.content[0]["text"]
    assert digest is not None


def test_session_may_read_results_before_one_is_stored() -> None:
    kept, session = KeptResults(), Principal("session", "ann", "agent", session="ab12")
    assert not kept.is_read_by(session)
    kept.are_read_in_sessions = True
    assert kept.is_read_by(session)
    assert not kept.is_read_by(CALLER)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"lines": "7"}, "7: line 7"),
        ({"lines": "1999-"}, "1999: line 1999\n2000: line 2000"),
        ({"grep": "LINE 1999"}, "1999: line 1999"),
        ({"grep": "e 19+8$"}, "198: line 198\n1998: line 1998"),
        ({"grep": "nothing"}, "[No line contains 'nothing'.]"),
    ],
)
def test_lines_and_patterns_are_read(arguments: JsonObject, expected: str) -> None:
    assert text_of(read_kept(KeptResults().keep(CALLER, LINES, ()), arguments)) == expected


@pytest.mark.parametrize(
    "pattern", ["NEEDLE", r"need\w+ \d", "(?i)NEED.E", "needle 7 .", r"needle \d .*end$", "border"],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 740, 1_495, 9_000])
def test_match_in_a_long_line_is_found_and_shown(pattern: str, at: int) -> None:
    line = f"{'x' * at}needle 7 border{'.' * 500}end"
    text = f"first\n{line.ljust(12_000) if pattern[-1] != '$' else line.rjust(12_000)}\nlast needle"
    answer = text_of(read_kept(KeptResults().keep(CALLER, text, ()), {"grep": pattern}))
    assert answer.startswith("2: [characters ")
    assert "needle 7 border" in answer
    assert len(answer) < 4_000


def test_anchors_match_only_the_ends_of_a_long_line() -> None:
    kept = KeptResults().keep(CALLER, "ab" * 10_000, ())
    assert text_of(read_kept(kept, {"grep": "^b.*a$"})).startswith("[No line contains")


def test_error_in_a_pattern_has_the_callers_position() -> None:
    answer = read_kept(KeptResults().keep(CALLER, LINES, ()), {"grep": "a("})
    assert text_of(answer) == "grep: unclosed `(` at position 3"


def test_pages_cover_the_whole_text() -> None:
    whole = KeptResults().keep(CALLER, LINES, ())
    first = text_of(read_kept(whole, {}))
    second = text_of(read_kept(whole, {"page": 2}))
    assert first.startswith("[Page 1 of 3]\n")
    assert LINES.startswith(first.partition("\n")[2] + second.partition("\n")[2])


@pytest.mark.parametrize(
    ("path", "expected"),
    [("items[1].name", '"b"'), ("items[*].name", '["a","b"]'), ("$.items[0]", '{"name":"a"}'), ("count", "2")],
)
def test_json_is_read_by_path(path: str, expected: str) -> None:
    whole = KeptResults().keep(CALLER, '{"items": [{"name": "a"}, {"name": "b"}], "count": 2}', ())
    assert text_of(read_kept(whole, {"path": path})) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"page": 0}, {"page": True}, {"page": 99}, {"lines": "x"}, {"lines": "0"}, {"lines": "9999"},
        {"grep": "(?=a)b"}, {"grep": "("}, {"path": "a"}, {"lines": 3}, {"lines": "1", "grep": "a"},
        {"lines": "5-1"}, {"json": "a"},
    ],
)  # fmt: skip
def test_invalid_read_request_is_an_error_result(arguments: JsonObject) -> None:
    assert read_kept(KeptResults().keep(CALLER, LINES, ()), arguments).is_error


def test_error_for_a_missing_path_names_the_existing_part() -> None:
    answer = read_kept(KeptResults().keep(CALLER, '{"items": []}', ()), {"path": "items[0]"})
    assert answer.is_error
    assert "at items" in text_of(answer)


def test_shape_shows_types_lengths_and_the_first_members() -> None:
    assert shape({"a": [{"b": 1}], "c": None, "d": "x" * 200}) == (
        "{'a': [1 × {'b': int}], 'c': None, 'd': str of 200 characters}"
    )
