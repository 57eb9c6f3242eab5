"""Command lines that need no crib: help, usage, settings, and errors before anything starts."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.main import main
from toolcrib.cli.tools.commands import describe_part
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.version import __version__

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    for name in ("PORT", "HOST", "LOG_LEVEL", "DATABASE_URL"):
        monkeypatch.delenv(f"TOOLCRIB_{name}", raising=False)
    return tmp_path / "home"


HEAVY = ("mcp", "starlette", "fastapi", "uvicorn", "sqlalchemy", "pydantic", "httpx2", "rich", "anyio", "asyncio")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from toolcrib.cli.main import main; code = main(['--help']);"
        f"sys.exit(code or ', '.join(sorted(set({HEAVY!r}) & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_help_lists_each_command_and_the_default(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(f"\n  {name} " in help_text for name in ("serve", "stdio", "tools", "why", "rules", "settings", "audit"))
    assert "`toolcrib serve --open`" in help_text


@pytest.mark.parametrize(
    "group", [[], ["mcp"], ["mcp", "secrets"], ["tools"], ["rules"], ["agents"], ["sessions"], ["audit"]]
)
def test_help_shows_complete_summaries_in_eighty_columns(
    group: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group, "--help"]) == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert lines
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


COMMANDS = (
    ["serve"], ["stdio"], ["tools", "list"], ["tools", "show"], ["tools", "call"], ["tools", "search"],
    ["tools", "changes"], ["tools", "accept"], ["tools", "reject"], ["why"], ["rules", "list"], ["rules", "allow"],
    ["rules", "ask"], ["rules", "deny"], ["rules", "remove"], ["rules", "simulate"], ["approvals", "list"],
    ["approvals", "approve"], ["approvals", "deny"], ["approvals", "answer"], ["approvals", "link"],
    ["tokens", "list"], ["tokens", "create"],
    ["tokens", "revoke"], ["settings"], ["audit"], ["audit", "verify"], ["chat"], ["sessions", "list"],
    ["sessions", "show"], ["sessions", "send"], ["sessions", "interrupt"], ["sessions", "fork"], ["sessions", "rename"],
    ["sessions", "delete"], ["sessions", "export"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_has_json_and_home(command: list[str], capsys: Capture) -> None:
    assert main([*command, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "--json" in help_text
    assert "--home DIR" in help_text


def test_version_is_printed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"toolcrib {__version__}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["tools", "lst"], "Did you mean 'list'?"),
        (["tools"], "Missing command"),
        (["tools", "call"], "Missing argument"),
        (["tools", "list", "--sever", "x"], "No such option"),
        (["serve", "--port", "many"], "--port"),
        (["serve", "--port", "65536"], "--port"),
        (["tools", "list", "--source", "moon"], "'moon' is not a source"),
        (["tools", "show", "noslash"], "'noslash' is not SERVER/TOOL"),
        (["tools", "call", "a/b", "[1]"], "not a JSON object"),
        (["why"], "Use either SERVER/TOOL or --record"),
        (["why", "a/b", "--record", "1"], "Use either SERVER/TOOL or --record"),
        (["why", "a/b", "--args", "[1]"], "not a JSON object"),
        (["rules", "simulate"], "Nothing to simulate"),
        (["rules", "simulate", "--file", "no/such.toml"], "cannot be read"),
        (["rules", "deny", "a/b", "--if", "/a like b"], "not POINTER TEST VALUE"),
        (["approvals", "approve", "x", "--scope", "ever"], "'ever' is not a scope"),
        (["approvals", "approve", "x", "--arguments", "1"], "not a JSON object"),
        (["approvals", "list", "--status", "open"], "'open' is not a status"),
        (["tokens", "create", "x", "--source", "moon"], "'moon' is not a source"),
        (["tools", "accept", "noslash", "--what", "tool"], "'noslash' is not SERVER/TOOL"),
        (["tools", "accept", "a/b", "--what", "moon"], "'moon' is not a kind"),
        (["tools", "call", "a/b", '{"x": 1,\n}'], "line 2, column 1"),
        (["tools", "call", "a/b", '{"x": NaN}'], "NaN is not a JSON number"),
        (["tools", "call", "a/b", '{"x": 1, "x": 2}'], "'x' appears twice"),
        (["audit", "--limit", "0"], "--limit"),
    ],
)
def test_invalid_command_line_exits_2_with_the_reason(
    line: list[str], expected: str, home: Path, capsys: Capture
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert expected in err
    assert "\n\nhint: " in err
    assert not home.exists()


def test_usage_error_is_json_if_requested(capsys: Capture) -> None:
    assert main(["tools", "lst", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "cli.usage"


def test_json_after_two_dashes_is_an_argument(capsys: Capture) -> None:
    assert main(["tools", "show", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_settings_show_value_and_origin_and_create_no_home(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TOOLCRIB_PORT", "5005")
    assert main(["settings", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["port"]["value"], rows["port"]["origin"]) == (5005, "TOOLCRIB_PORT")
    assert (rows["home"]["value"], rows["home"]["origin"]) == (str(home), "TOOLCRIB_HOME")
    assert not home.exists()


@pytest.mark.parametrize("line", [["--home", "{}", "settings"], ["settings", "--home", "{}"]])
def test_home_option_is_accepted_before_and_after_the_command(line: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main([part.format(tmp_path) for part in line]) == 0
    assert f"{tmp_path}  flag --home" in capsys.readouterr().out


def test_settings_show_problems_next_to_all_values(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TOOLCRIB_PORT", "many")
    home.mkdir()
    (home / "toolcrib.toml").write_text('log_level = "debug"\nprot = 1\n', encoding="utf-8")
    assert main(["settings"]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^log_level +debug ", out, re.MULTILINE)
    assert "warning: TOOLCRIB_PORT must be a whole number from 0 to 65535, not 'many'." in err
    assert f"warning: {home}/toolcrib.toml:2: `prot` is not a setting.\n  hint: Did you mean `port`?" in err


def test_invalid_variable_stops_a_command_that_needs_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TOOLCRIB_PORT", "many")
    assert main(["serve"]) == 1
    assert "TOOLCRIB_PORT must be" in capsys.readouterr().err
    assert not home.exists()


def test_unusable_home_is_rejected_with_a_message(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    assert main(["tools", "list", "--home", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'file'} is not a directory.")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), typer.Abort()])
def test_ctrl_c_exits_quietly_with_130(
    interruption: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(_: object) -> None:
        raise interruption

    monkeypatch.setattr("toolcrib.cli.arguments.check_source", interrupt)
    assert main(["tools", "list", "--json"]) == 130
    assert capsys.readouterr() == ("", "")


def test_unexpected_error_shows_its_traceback_only_at_log_level_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr("toolcrib.cli.arguments.check_source", fail)
    assert main(["tools", "list"]) == 5
    assert capsys.readouterr().err == (
        "error: An unexpected error occurred (ZeroDivisionError).\n\n"
        "hint: The traceback is shown with TOOLCRIB_LOG_LEVEL=debug.\n"
    )
    monkeypatch.setenv("TOOLCRIB_LOG_LEVEL", "debug")
    assert main(["tools", "list"]) == 5
    assert "ZeroDivisionError: deep inside" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_arguments_are_parsed_as_json(value: JsonObject) -> None:
    assert parse_arguments(json.dumps(value)) == value


@given(st.text())
def test_any_text_is_parsed_or_rejected_as_invalid(text: str) -> None:
    try:
        assert isinstance(parse_arguments(text), dict)
    except InvalidRequest as error:
        assert error.exit_code == 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"n": ' + "9" * 5000 + "}"])
def test_arguments_that_are_too_deep_or_too_big_are_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_arguments(text)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "plain"}, "plain"),
        ({"type": "image", "data": "aGVsbG8h", "mimeType": "image/png"}, "[image image/png, 6 bytes]"),
        ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "[audio audio/wav, 0 bytes]"),
        ({"type": "resource", "resource": {"uri": "a://b", "text": "inside"}}, "[resource a://b]\ninside"),
        ({"type": "resource", "resource": {"uri": "a://b", "blob": "AA=="}}, "[resource a://b]"),
        ({"type": "resource_link", "uri": "a://b", "name": "x"}, "[link a://b]"),
        ({"type": "hologram"}, "[hologram]"),
        ({}, "[part]"),
    ],
)
def test_each_part_of_a_result_is_shown_or_described(part: JsonObject, expected: str) -> None:
    assert describe_part(part) == expected
