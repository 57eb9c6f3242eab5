"""`--json` on failure: every command prints exactly one JSON document to standard output."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from toolcrib.cli.main import COMMANDS, command_tree, main

UNUSABLE = "/dev/null/home"
NEED_NO_HOME = {"doctor": 1, "settings": 0}
"""Their exit codes: `doctor` reports the home, `settings` only shows it."""
VALUE = "1"
"""A valid number that is not the name of anything."""


def leaf_commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, with a value for each required parameter."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaf_commands(inner, *path, name)
    if not getattr(command, "commands", {}) or getattr(command, "invoke_without_command", False):
        needed = [parameter for parameter in command.params if parameter.required]
        options = [word for each in needed if each.param_type_name == "option" for word in (each.opts[0], VALUE)]
        yield (*path, *options, *(VALUE for each in needed if each.param_type_name == "argument"))


ALL = sorted(each for each in leaf_commands(get_command(command_tree())) if each)


def printed_document(capsys: pytest.CaptureFixture[str]) -> Any:
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return json.loads(printed.out)


def test_there_are_more_than_90_commands() -> None:
    assert len(ALL) > 90


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_unusable_home_prints_one_json_document(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*words, "--json", "--home", UNUSABLE])
    printed = printed_document(capsys)
    if words[0] in NEED_NO_HOME:
        assert code == NEED_NO_HOME[words[0]]
    else:
        assert code in (1, 2, 3, 5)
        assert printed["error"]["code"] and printed["error"]["message"]


@pytest.mark.parametrize("name", COMMANDS)
def test_invalid_option_prints_one_json_document(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--json", "--no-such-option"]) == 2
    assert printed_document(capsys)["error"]["code"] == "cli.usage"
