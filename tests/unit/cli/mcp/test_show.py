"""Words for a person: states, places, problems and questions, with nothing that others wrote passing for ours."""

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
def test_a_state_is_said_in_words(change: JsonObject, words: str) -> None:
    assert describe_state(SERVER | change) == words


def test_a_server_has_a_row_for_each_of_its_places(capsys: Capture) -> None:
    more = {"client": "zed", "scope": "user", "file": "/z", "line": None}
    show_servers([SERVER | {"alias": "a_1", "sources": [*SERVER["sources"], more]}], [])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["a", "(a_1)", "stdio", "not", "checked", "-", "cursor", "/f:3"], ["zed", "/z"]]


def test_no_servers_is_said_and_a_problem_still_shown(capsys: Capture) -> None:
    show_servers([], [{"code": "config.syntax", "message": "broken", "file": "/f", "line": 2, "hint": "Mend it."}])
    out, err = capsys.readouterr()
    assert out == "\nproblems:\n  /f:2: broken\n    hint: Mend it.\n"
    assert err == "No servers found.\n"


def test_a_problem_cannot_pass_for_two() -> None:
    assert describe_problem({"code": "x", "message": "a\n  /etc/passwd: b"}) == "a /etc/passwd: b"


def test_a_question_is_whole_and_its_values_stay_on_their_lines() -> None:
    long = "x" * 5000
    lines = question_lines(QUESTION | {"commandLine": f"sh -c '{long}\n  server: harmless'"})
    assert lines[2] == f"  runs:        sh -c '{long}\\n  server: harmless'"
    assert [line.split(":")[0].strip() for line in lines] == [
        "server", "defined by", "runs", "program", "in", "variables",
    ]  # fmt: skip


def test_a_grave_warning_stands_out() -> None:
    warnings = [{"code": "x", "message": "m", "grave": True}, {"code": "y", "message": "n", "grave": False}]
    assert question_lines(QUESTION | {"warnings": warnings})[-2:] == ["  DANGER: m", "  warning: n"]


COMMANDS = ("list", "get", "add", "remove", "rm", "enable", "disable", "trust", "untrust", "import", "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_home(command: str, capsys: Capture) -> None:
    assert main(["mcp", command, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--json" in said
    assert "--home DIR" in said
