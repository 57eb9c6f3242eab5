"""Text for the terminal: states, places, problems and trust questions, safe against injected lines."""

import pytest

from toolcrib.cli.main import main
from toolcrib.cli.mcp.show import describe_problem, describe_state, question_lines, show_servers
from toolcrib.model.json import JsonObject

Capture = pytest.CaptureFixture[str]

SERVER: JsonObject = {
    "name": "a", "alias": "a", "type": "stdio", "state": "not_checked", "sameAs": [], "problems": [], "tools": 0,
    "sources": [{"client": "cursor", "scope": "user", "file": "/f", "line": 3}],
}  # fmt: skip
QUESTION: JsonObject = {
    "name": "a", "place": "cursor, /f:3", "commandLine": "sh -c 'x'", "program": "/bin/sh", "cwd": "/w", "url": None,
    "env": ["K"], "headers": [], "warnings": [], "digest": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "not checked"),
        ({"state": "untrusted"}, "not trusted"),
        ({"state": "disabled"}, "disabled"),
        ({"state": "invalid"}, "invalid"),
        ({"state": "shadowed", "shadowedBy": "b"}, "shadowed by b"),
        ({"sameAs": ["b", "c"]}, "not checked (same as b, c)"),
    ],
)
def test_state_is_described_in_words(change: JsonObject, words: str) -> None:
    assert describe_state(SERVER | change) == words


def test_server_has_one_row_for_each_place(capsys: Capture) -> None:
    more = {"client": "zed", "scope": "user", "file": "/z", "line": None}
    show_servers([SERVER | {"alias": "a_1", "sources": [*SERVER["sources"], more]}], [])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["a", "(a_1)", "stdio", "not", "checked", "-", "cursor", "/f:3"], ["zed", "/z"]]


def test_empty_list_is_reported_and_problems_are_shown(capsys: Capture) -> None:
    show_servers([], [{"code": "config.syntax", "message": "broken", "file": "/f", "line": 2, "hint": "Mend it."}])
    out, err = capsys.readouterr()
    assert out == "\nproblems:\n  /f:2: broken\n    hint: Mend it.\n"
    assert err == "No servers found.\n"


def test_problem_is_shown_on_one_line() -> None:
    assert describe_problem({"code": "x", "message": "a\n  /etc/passwd: b"}) == "a /etc/passwd: b"


def test_trust_question_is_complete_and_keeps_each_value_on_its_line() -> None:
    long = "x" * 5000
    lines = question_lines(QUESTION | {"commandLine": f"sh -c '{long}\n  server: harmless'"})
    assert lines[2] == f"  runs:        sh -c '{long}\\n  server: harmless'"
    assert [line.split(":")[0].strip() for line in lines] == [
        "server", "defined by", "runs", "program", "in", "variables",
    ]  # fmt: skip


def test_grave_warning_is_marked_as_danger() -> None:
    warnings = [{"code": "x", "message": "m", "grave": True}, {"code": "y", "message": "n", "grave": False}]
    assert question_lines(QUESTION | {"warnings": warnings})[-2:] == ["  DANGER: m", "  warning: n"]


COMMANDS = ("list", "get", "add", "remove", "rm", "enable", "disable", "trust", "untrust", "import", "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_json_and_home(command: str, capsys: Capture) -> None:
    assert main(["mcp", command, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "--json" in help_text
    assert "--home DIR" in help_text
