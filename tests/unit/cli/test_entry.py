"""Which command lines start a front without loading the full command tree."""

import pytest

from toolcrib.cli import entry
from toolcrib.cli.entry import FrontOptions, front_options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("stdio", FrontOptions()),
        ("stdio --agent reviewer", FrontOptions(agent="reviewer")),
        ("stdio --agent=reviewer --home /a", FrontOptions("/a", "reviewer")),
        ("stdio --as laptop", FrontOptions(token="laptop")),
        ("--home /a stdio", FrontOptions("/a")),
        ("--home=/a --json stdio", FrontOptions("/a", as_json=True)),
        ("--home /a stdio --home /b", FrontOptions("/b")),
    ],
)
def test_front_is_recognised_with_its_options(line: str, options: FrontOptions) -> None:
    assert front_options(line.split()) == options


@pytest.mark.parametrize(
    "line",
    [
        "",
        "serve",
        "stdio --help",
        "stdio extra",
        "stdio --agent",
        "--agent reviewer stdio",
        "--as laptop stdio",
        "mcp stdio",
        "stdio stdio",
        "--version",
        "tools call stdio",
        "stdio --home",
    ],
)
def test_other_command_lines_are_left_to_the_command_tree(line: str) -> None:
    assert front_options(line.split()) is None


def test_ctrl_c_during_the_imports_of_a_command_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["toolcrib", "settings"])
    monkeypatch.setattr("toolcrib.cli.main.run", interrupt)
    with pytest.raises(SystemExit) as ended:
        entry.run()
    assert ended.value.code == 130
