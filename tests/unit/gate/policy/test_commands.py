"""Commands in conditions: only plain commands match by their first words."""

import pytest

from toolcrib.gate.policy.commands import begins_with


@pytest.mark.parametrize("command", ["git status", "git status -s", "git  'status'  x", '"git" status'])
def test_plain_command_begins_with_its_words(command: str) -> None:
    assert begins_with(command, "git status") is True


@pytest.mark.parametrize("command", ["ls", "gitk status", "echo status"])
def test_other_command_does_not_match(command: str) -> None:
    assert begins_with(command, "git status") is False


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf ~",
        "git status && rm -rf ~",
        "git status || rm x",
        "git status | sh",
        "git status `rm x`",
        "git status $(rm x)",
        "git status $HOME",
        "git status\nrm x",
        "git status\r\nrm x",
        "git status > ~/.bashrc",
        "git status < x",
        "git status &",
        "git status (x)",
        "git status {a,b}",
        "git status 'unclosed",
        "git status \\",
        "PAGER=evil git status",
        "sudo git status",
        "env git status",
        "/tmp/git status",
        "git -c core.pager=evil status",
        "",
        "git status " + "x" * 5_000,
    ],
)
def test_command_that_may_run_more_is_undecided(command: str) -> None:
    assert begins_with(command, "git status") is None
