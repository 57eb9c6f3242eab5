"""The flags of `mcp add`: the resulting entry, and the documented messages."""

from pathlib import Path

import pytest

from toolcrib.cli.main import main
from toolcrib.cli.mcp.definition import Typed, entry_of
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        (Typed(command=["npx", "-y", "a"]), {"type": "stdio", "command": "npx", "args": ["-y", "a"]}),
        (
            Typed(command=["a"], env=["K=V=W", "E="], cwd="/x", timeout=5, disabled=True),
            {
                "type": "stdio",
                "command": "a",
                "args": [],
                "env": {"K": "V=W", "E": ""},
                "cwd": "/x",
                "enabled": False,
                "timeout": 5,
            },
        ),
        (Typed(url="https://x"), {"type": "http", "url": "https://x"}),
        (
            Typed(url="https://x", share="session", client_id="me"),
            {"type": "http", "url": "https://x", "auth": {"type": "oauth", "clientId": "me"}, "share": "session"},
        ),
        (Typed(command=["a"], share="shared"), {"type": "stdio", "command": "a", "args": [], "share": "shared"}),
        (
            Typed(url="https://x", type="sse", token="t", headers=["A=b: c", "B: d=e"]),
            {"type": "sse", "url": "https://x", "headers": {"A": "b: c", "B": "d=e", "Authorization": "Bearer t"}},
        ),
    ],
)
def test_flags_become_an_entry(typed: Typed, entry: JsonObject) -> None:
    assert entry_of(typed) == entry


def test_relative_directory_is_resolved_except_in_a_projects_file() -> None:
    assert entry_of(Typed(command=["a"], cwd="sub"))["cwd"] == str(Path.cwd() / "sub")
    assert entry_of(Typed(command=["a"], cwd="sub", scope="project"))["cwd"] == "sub"
    assert entry_of(Typed(command=["a"], cwd="${ROOT}/x"))["cwd"] == "${ROOT}/x"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (Typed(url="https://x", command=["a"]), "Use either --url or -- <command...>, not both."),
        (Typed(command=["a"], token="t"), "--token requires --url (HTTP/SSE transport)."),
        (Typed(command=["a"], headers=["A=b"]), "--header requires --url (HTTP/SSE transport)."),
        (Typed(command=["a"], type="sse"), "--type requires --url (HTTP/SSE transport)."),
        (Typed(url="https://x", type="stdio"), "Invalid --type value. Use http or sse."),
        (Typed(command=["a"], client_id="me"), "--client-id requires --url (HTTP/SSE transport)."),
        (Typed(url="https://x", client_id=" "), "--client-id requires a client ID."),
        (Typed(command=["a"], share="mine"), "Invalid --share value. Use shared or session."),
        (Typed(url="https://x", env=["A=b"]), "--env requires -- <command...> (stdio transport)."),
        (Typed(url="https://x", cwd="/x"), "--cwd requires -- <command...> (stdio transport)."),
        (Typed(), "Specify the server: --url URL, or -- <command...>."),
        (Typed(command=["a"], env=["A"]), "--env requires NAME=VALUE."),
        (Typed(url="https://x", headers=["=x"]), "--header requires NAME=VALUE."),
    ],
)
def test_conflicting_flags_are_rejected_with_the_documented_message(typed: Typed, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        entry_of(typed)
    assert (caught.value.code, caught.value.message) == ("cli.usage", message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["x", "--url", "https://x", "--", "y"], "Use either --url or -- <command...>, not both."),
        (["x", "--token", "t", "--", "y"], "--token requires --url (HTTP/SSE transport)."),
        (["--url", "https://x"], "Missing argument 'NAME'."),
        (["x", "--scope", "moon", "--", "y"], "'moon' is not a scope."),
        (["x", "--timeout", "-1", "--", "y"], "--timeout"),
        ([], "Specify the server: --url URL, or -- <command...>."),
    ],
)
def test_invalid_command_line_exits_2_before_anything_is_opened(
    line: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    assert main(["mcp", "add", *line]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_mcp_alone_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in ("list", "get", "add", "remove", "trust", "import", "export"))
