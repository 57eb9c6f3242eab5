"""Arguments as an approval displays them: complete, with nothing hidden, and distinct for distinct values."""

import json
import os
import unicodedata
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.approvals.display import LONGEST_RUN, editable, show
from toolcrib.gate.policy.paths import REAL
from toolcrib.model.json import Json

HOSTILE = st.sampled_from(
    [
        "\u202e",
        "\u200b",
        "\x1b[2J",
        "\x9b",
        "\U000e0041",
        "\u00a0",
        "\\",
        "\\n",
        "\n",
        " ",
        "\t",
        "\r",
        '"',
        "{",
        "\u0301",
    ]
)
TEXT = st.lists(st.one_of(HOSTILE, st.text(max_size=5)), max_size=12).map("".join)


def padded(before: str, blank: str, count: int, after: str) -> str:
    return before + blank * count + after


PADDED = st.builds(padded, TEXT, st.sampled_from(" \n\t\r"), st.integers(0, 60), TEXT)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXT, PADDED),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(TEXT, below, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_shown_text_has_no_control_or_hidden_characters(value: Json) -> None:
    for character in show(value).text:
        assert character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        assert unicodedata.category(character) != "Zs" or character == " "


@given(VALUES, VALUES)
def test_distinct_values_have_distinct_texts(one: Json, two: Json) -> None:
    same = orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(two, option=orjson.OPT_SORT_KEYS)
    assert (show(one).text == show(two).text) == same


@given(VALUES)
def test_plain_arguments_are_shown_as_plain_json(value: Json) -> None:
    plain = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    shown = show(value)
    if (
        plain.isascii()
        and "\x7f" not in plain
        and not any(blank * LONGEST_RUN in plain for blank in (" ", "\\n", "\\t", "\\r"))
    ):
        assert orjson.loads(shown.text) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u202egpj.exe", r"\u{202e}gpj.exe"),
        ("a\u200bb", r"a\u{200b}b"),
        ("\U000e0069gnore", r"\u{e0069}gnore"),
        ("a\u00a0b", r"a\u{a0}b"),
        ("\x1b[31m", r"\u001b[31m"),
        ("\\u{202e}", r"\\u{202e}"),
        ("x" + " " * 4000 + "rm -rf /", r"x\{4000 spaces}rm -rf /"),
        ("x" + "\n" * 300 + "y", r"x\{300 line breaks}y"),
        ("\\n" + " " * 40, r"\\n\{40 spaces}"),
        ("e" + "\u0301" * 4, "e\u0301\u0301" + r"\u{301}\u{301}"),
        ("für 日本 😀", "für 日本 😀"),
    ],
)
def test_hidden_characters_and_long_runs_are_escaped(text: str, shown: str) -> None:
    assert show({"command": text}).text == f'{{\n  "command": "{shown}"\n}}'


def test_remarks_name_the_value_and_the_reason() -> None:
    shown = show({"a": ["ls", "rm\u202e\u200b"], "b/c": "x" + " " * 100, "host": "p\u0430ypal.com", "k\u200b": 1})
    assert shown.hidden == 3
    assert [(remark.pointer, remark.message) for remark in shown.remarks] == [
        ("/a/1", "2 hidden characters"),
        ("/b~1c", "a run of 100 blanks"),
        ("/host", "letters of different scripts that look alike"),
        (r"/k\u{200b}", "1 hidden character"),
    ]


def test_long_text_is_not_cut() -> None:
    long = "".join(chr(0x61 + number % 26) for number in range(1_000_000))
    assert long in show({"text": long}).text


def test_strings_of_the_corpus_hide_nothing() -> None:
    corpus = os.environ.get("TOOLCRIB_CORPUS")
    if not corpus:
        pytest.skip("TOOLCRIB_CORPUS is not set")
    lines = (Path(corpus) / "own-vectors" / "terminal-and-display.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        text = json.loads(line)["text"]
        safe = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for character in show({"text": safe}).text:
            assert character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")


@given(VALUES)
def test_editable_arguments_are_equivalent_and_hide_nothing(value: Json) -> None:
    text = editable(value)
    assert orjson.loads(text) == value
    assert not any(unicodedata.category(each) in ("Cf", "Co", "Zl", "Zp", "Mn") for each in text)
    assert not any(" " * (LONGEST_RUN + 1) in line.strip(" ") for line in text.split("\n"))


def test_each_argument_has_its_size_and_long_ones_are_collapsed() -> None:
    shown = show({"short": "a", "long": "b" * 12_841, "lines": "c\n" * 16, "kept": "d\n" * 3, "n": {"a": 1}})
    sizes = {each.name: (each.characters, each.collapsed) for each in shown.arguments}
    assert sizes["short"] == (1, False)
    assert sizes["long"] == (12_841, True)
    assert sizes["lines"] == (32, True)
    assert sizes["kept"] == (6, False)
    assert len({each.digest for each in shown.arguments}) == 5
    assert next(each.text for each in shown.arguments if each.name == "kept") == '"d\\n\nd\\n\nd\\n\n"'


def test_path_through_a_link_is_remarked_with_the_real_path(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    (real / "link").symlink_to("/etc")
    given = {
        "file_path": str(real / "link" / "passwd"),
        "path": "plain.txt",
        "other": f"{real}/a/../b",
        "paths": ["./link/x"],
    }
    remarks = {each.pointer: each.message for each in show(given, str(real), REAL).remarks}
    assert remarks["/file_path"] == f"the real path is {Path('/etc/passwd').resolve()}"
    assert remarks["/other"] == f"the real path is {real}/b"
    assert remarks["/paths/0"] == "the real path is /etc/x"
    assert "/path" not in remarks
