"""Editing one server in a text: all other bytes are kept, and the result reads as intended."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.files.reading import FileText
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest, NotFound, ToolcribError
from toolcrib.servers.edit import toml_text
from toolcrib.servers.edit.entries import add_server, put_server, remove_server, switch_server
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import ConfigFile, ReadEntry, read_content

JSON = ConfigFile("opencode", "user", Path("opencode.jsonc"))
CURSOR = ConfigFile("cursor", "user", Path("mcp.json"))
CODEX = ConfigFile("codex", "user", Path("config.toml"))
GOOSE = ConfigFile("goose", "user", Path("config.yaml"))
CONTINUE = ConfigFile("continue", "user", Path("config.yaml"))
ZED = ConfigFile("zed", "user", Path("settings.json"))


def entries(place: ConfigFile, text: str) -> dict[str, ReadEntry]:
    """Return the entries of a text by name."""
    reading = read_content(place, FileText(text, False, ""), ReadingContext(place.file))
    assert not reading.broken, reading.problems
    return {entry.name: entry for entry in reading.entries}


def raws(place: ConfigFile, text: str) -> dict[str, Any]:
    """Return the entries of a text by name, as written."""
    return {name: entry.raw for name, entry in entries(place, text).items()}


COMMENTED = """\
// my servers
{
    /* keep */
    "mcpServers": {
        // first
        "a": { "command": "x", "args": ["1",  "2"] }, // about a
        "b": {
            "command": "y" // why
            , "env": {"K": "v",},
        },

        // last
        "c": {"url": "https://c"} // about c
    },
    "other": [1,2,   3],
}
"""


def test_removing_a_server_keeps_the_other_lines() -> None:
    """Comments of the other servers, unusual spacing and blank lines are kept."""
    without_a = remove_server(CURSOR, "a")(COMMENTED)
    assert without_a == COMMENTED.replace('        "a": { "command": "x", "args": ["1",  "2"] }, // about a\n', "")
    without_b = remove_server(CURSOR, "b")(COMMENTED)
    assert without_b.splitlines() == [*COMMENTED.splitlines()[:6], *COMMENTED.splitlines()[10:]]
    without_c = remove_server(CURSOR, "c")(COMMENTED)
    assert set(raws(CURSOR, without_c)) == {"a", "b"}
    assert "// about c" not in without_c
    assert "        // last\n    }," in without_c


def test_added_server_follows_the_others_in_their_indentation() -> None:
    """Apart from the entry, only the comma that JSON needs is added."""
    added = add_server(CURSOR, "d", {"command": "z"})(COMMENTED)
    expected = COMMENTED.replace(
        '"c": {"url": "https://c"} // about c\n',
        '"c": {"url": "https://c"}, // about c\n        "d": {\n            "command": "z"\n        }\n',
    )
    assert added == expected


def test_adding_to_a_single_line_file_keeps_it_on_one_line() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}}}'
    assert add_server(CURSOR, "b", {"command": "y"})(text) == (
        '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}'
    )


def test_windows_line_ends_and_tabs_are_kept() -> None:
    text = '{\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "x"}\r\n\t}\r\n}\r\n'
    added = add_server(CURSOR, "b", {"command": "y"})(text)
    assert added == text.replace('"x"}\r\n', '"x"},\r\n\t\t"b": {\r\n\t\t\t"command": "y"\r\n\t\t}\r\n')
    assert remove_server(CURSOR, "b")(added) == text


@pytest.mark.parametrize(
    "text", ["", "{}", "{\n}\n", '{"mcpServers": {}}', '{\n  "mcpServers": {\n    // none yet\n  }\n}\n', '{"x": 1}']
)
def test_first_server_is_added_to_any_empty_form(text: str) -> None:
    """No file, no root key, an empty root, a root with only a comment."""
    added = add_server(CURSOR, "a", {"command": "x"})(text)
    assert raws(CURSOR, added) == {"a": {"command": "x"}}
    assert "// none yet" in added or "// none yet" not in text


def test_taken_or_unknown_name_is_rejected_with_the_path() -> None:
    """These messages are documented."""
    with pytest.raises(Conflict, match=r'Server "a" already exists in mcp\.json'):
        add_server(CURSOR, "a", {"command": "x"})(COMMENTED)
    with pytest.raises(NotFound, match=r'Server "nope" not found in mcp\.json'):
        remove_server(CURSOR, "nope")(COMMENTED)


def test_broken_file_is_not_edited() -> None:
    with pytest.raises(ConfigError) as caught:
        put_server(CURSOR, "a", {"command": "x"})('{"mcpServers": {"a": ')
    assert caught.value.code == "config.edit"


def test_switching_uses_the_clients_own_field_and_changes_nothing_else() -> None:
    """`enabled` in Zed, Codex, opencode and Goose; `disabled` in Kiro."""
    zed = '{\n  "context_servers": {"a": {"command": "x"}}, // c\n}\n'
    assert switch_server(ZED, "a", False)(zed) == zed.replace('"x"}', '"x", "enabled": false}')
    codex = '# top\n[mcp_servers.a] # here\ncommand = "x"\n\n[other]\ny = 1\n'
    off = switch_server(CODEX, "a", False)(codex)
    assert off == codex.replace("# here\n", "# here\nenabled = false\n")
    assert switch_server(CODEX, "a", True)(off) == off.replace("enabled = false", "enabled = true")
    goose = "extensions:\n  a: # note\n    type: stdio\n    cmd: x\n    enabled: true # now\n"
    assert switch_server(GOOSE, "a", False)(goose) == goose.replace("true # now", "false # now")
    kiro = ConfigFile("kiro", "user", Path("mcp.json"))
    text = '{"mcpServers": {"a": {"command": "x", "disabled": true}}}'
    assert switch_server(kiro, "a", True)(text) == text.replace("true", "false")


def test_servers_of_one_project_in_a_shared_file_are_edited_separately() -> None:
    """Claude Code stores the servers of the user and of each project under the same names in one file."""
    servers = {"x": {"command": "a"}, "y": {"command": "b"}}
    projects = {path: {"mcpServers": servers} for path in ("/p", "/q")}
    whole = {"projects": projects, "mcpServers": servers}
    text = json.dumps(whole, indent=2)
    local = ConfigFile("claude-state", "local", Path(".claude.json"), directory=Path("/q"))
    user = ConfigFile("claude-state", "user", Path(".claude.json"))
    changed = json.loads(remove_server(local, "x")(text))
    projects["/q"] = {"mcpServers": {"y": {"command": "b"}}}
    assert changed == whole
    assert json.loads(remove_server(user, "x")(text))["projects"] == json.loads(text)["projects"]
    only_user = json.dumps({"mcpServers": servers})
    with pytest.raises(NotFound):
        remove_server(local, "x")(only_user)
    with pytest.raises(InvalidRequest) as caught:
        switch_server(local, "x", False)(text)
    assert caught.value.code == "config.unsupported"


def test_switching_is_rejected_for_a_client_without_a_switch() -> None:
    """Claude Code would ignore the field, so it is not written."""
    claude = ConfigFile("claude-code", "project", Path(".mcp.json"))
    with pytest.raises(InvalidRequest) as caught:
        switch_server(claude, "a", False)('{"mcpServers": {"a": {"command": "x"}}}')
    assert caught.value.code == "config.unsupported"


TOML = """\
# my settings
model = "x"   # fast

[mcp_servers.a]  # first
command = "npx"
args = [
  "-y", # yes
  "pkg",
]

[mcp_servers.a.env]
K = \"\"\"
[mcp_servers.fake]
\"\"\"

# about b
[mcp_servers."b c"]
url = 'https://b'

[profiles.p]
model = "y"
"""


def test_toml_tables_are_added_replaced_and_removed_in_place() -> None:
    """Other tables, comments and a string that looks like a header are kept."""
    added = add_server(CODEX, "n", {"command": "z", "env": {"A": "1"}})(TOML)
    block = '\n[mcp_servers.n]\ncommand = "z"\n\n[mcp_servers.n.env]\nA = "1"\n'
    assert added == TOML.replace("url = 'https://b'\n", f"url = 'https://b'\n{block}")
    assert remove_server(CODEX, "n")(added) == TOML
    removed = remove_server(CODEX, "a")(TOML)
    assert removed.startswith('# my settings\nmodel = "x"   # fast\n')
    assert "# about b\n[mcp_servers.\"b c\"]\nurl = 'https://b'\n" in removed
    assert set(tomllib.loads(removed)["mcp_servers"]) == {"b c"}
    replaced = put_server(CODEX, "a", {"command": "q"})(TOML)
    assert tomllib.loads(replaced)["mcp_servers"]["a"] == {"command": "q"}
    assert replaced.endswith(TOML[TOML.index("\n# about b") :])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('[mcp_servers.x]\ncommand = "a"\n', ""),
        ('[mcp_servers.x]\ncommand = "a"\n\n[mcp_servers.x.env]\nA = "b"\n', ""),
        ('[mcp_servers.x.env]\nA = "b"\n[mcp_servers.x]\ncommand = "a"\n', ""),
        ('mcp_servers.x.command = "a"\nmcp_servers.x.env.A = "b"\n', ""),
        ('model = "m"\n\n[mcp_servers.x]\ncommand = "a"\n\n[mcp_servers.x.env]\nA = "b"\n', 'model = "m"\n'),
        ('[mcp_servers]\n[mcp_servers.x]\ncommand = "a"\n[mcp_servers.x.env]\nA = "b"\n', "[mcp_servers]\n"),
    ],
)
def test_last_server_of_a_toml_file_is_removed_with_all_its_tables(text: str, left: str) -> None:
    """The table of servers is removed too if it only existed for them."""
    assert remove_server(CODEX, "x")(text) == left


def test_toml_inline_tables_are_rejected() -> None:
    """They cannot be edited without touching their neighbours."""
    with pytest.raises(ConfigError) as caught:
        add_server(CODEX, "b", {"command": "y"})('mcp_servers = { a = { command = "x" } }\n')
    assert caught.value.code == "config.edit"


YAML = """\
# goose
GOOSE_MODE: auto   # mode
extensions:
  a:   # first
    type: stdio
    cmd: x
    args:
      - "1"
    enabled: true
    # inside a

  # about b
  b:
    type: stdio
    cmd: |
      y
    enabled: false
other: 1
"""


def test_yaml_entries_are_added_replaced_and_removed_in_place() -> None:
    """Comments of the other entries and surrounding keys are kept."""
    added = add_server(GOOSE, "new", {"type": "stdio", "cmd": "z", "args": ["a: b"], "enabled": True})(YAML)
    block = '  new:\n    type: "stdio"\n    cmd: "z"\n    args:\n      - "a: b"\n    enabled: true\n'
    assert added == YAML.replace("other: 1", f"{block}other: 1")
    assert remove_server(GOOSE, "new")(added) == YAML
    removed = remove_server(GOOSE, "b")(YAML)
    assert set(raws(GOOSE, removed)) == {"a"}
    assert removed.startswith(YAML[: YAML.index("  b:")])
    assert removed.endswith("other: 1\n")
    emptied = remove_server(GOOSE, "a")(removed)
    assert raws(GOOSE, emptied) == {}
    assert raws(GOOSE, add_server(GOOSE, "a", {"cmd": "q", "type": "stdio"})(emptied)) == {
        "a": {"cmd": "q", "type": "stdio"}
    }


def test_yaml_lists_of_servers_are_edited_by_name() -> None:
    """Continue stores a list."""
    text = "name: c\nmcpServers:\n  - name: a\n    command: x # why\n  - name: b\n    command: y\nmodels: []\n"
    added = add_server(CONTINUE, "n", {"command": "z"})(text)
    assert added == text.replace("models", '  - name: "n"\n    command: "z"\nmodels')
    assert remove_server(CONTINUE, "a")(text) == text.replace("  - name: a\n    command: x # why\n", "")
    assert raws(CONTINUE, put_server(CONTINUE, "a", {"command": "q"})(text))["a"] == {"name": "a", "command": "q"}


TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=10).filter(
    lambda name: bool(name.strip())
)
VALUES = st.fixed_dictionaries(
    {"command": st.just("x")},
    optional={
        "args": st.lists(TEXT, max_size=3),
        "env": st.dictionaries(NAMES, TEXT, max_size=3),
        "timeout": st.integers(0, 10**6),
        "enabled": st.booleans(),
    },
)
FILES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)
FILLER = st.sampled_from(["", " ", "\n", "\n\n  ", "/* c */", "// x\n", "\t", "\r\n"])


@st.composite
def loose_json(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a JSONC text with comments, irregular spacing and trailing commas, and its servers."""
    servers = draw(FILES)

    def gap() -> str:
        return draw(FILLER)

    members = [f"{gap()}{json.dumps(name)}{gap()}:{gap()}{json.dumps(raw)}{gap()}" for name, raw in servers.items()]
    inner = ",".join(members) + draw(st.sampled_from(["", ","])) + gap()
    head, tail = (
        draw(st.sampled_from(["", '"before": [1, {"x": "}"}],'])),
        draw(st.sampled_from(["", ',"after": "//"', ","])),
    )
    return f'{gap()}{{{gap()}{head}{gap()}"mcpServers": {{{inner}}}{gap()}{tail}{gap()}}}{gap()}', servers


@settings(deadline=None)
@given(loose_json(), NAMES, VALUES)
def test_any_json_text_is_edited_and_only_the_entry_changes(
    file: tuple[str, dict[str, Any]], name: str, value: dict[str, Any]
) -> None:
    """Setting and removing an entry reads as intended; other entries keep their exact text."""
    text, servers = file
    changed = put_server(CURSOR, name, value)(text)
    assert raws(CURSOR, changed) == {**servers, name: value}
    for other in servers:
        if other != name:
            assert json.dumps(other) in changed
            assert json.dumps(servers[other]) in changed
    if name not in servers:
        assert _without_spaces(remove_server(CURSOR, name)(changed)) == _without_spaces(text)
    some = next(iter(servers))
    assert raws(CURSOR, remove_server(CURSOR, some)(text)) == {key: raw for key, raw in servers.items() if key != some}


def _without_spaces(text: str) -> str:
    return "".join(text.split())


@settings(deadline=None)
@given(FILES, NAMES, VALUES, st.sampled_from([("toml", CODEX), ("yaml", GOOSE), ("yaml", CONTINUE)]))
def test_text_built_entry_by_entry_is_read_back_in_every_format(
    servers: dict[str, Any], name: str, value: dict[str, Any], format_: tuple[str, ConfigFile]
) -> None:
    """For TOML and YAML, with any names and values."""
    _, place = format_
    text = "# mine\n" if place is not CONTINUE else "name: c\n"
    for each, raw in servers.items():
        text = put_server(place, each, raw)(text)
    changed = put_server(place, name, value)(text)
    expected = {**servers, name: value}
    listed = {key: {"name": key, **raw} for key, raw in expected.items()} if place is CONTINUE else expected
    assert raws(place, changed) == listed
    if name not in servers:
        assert remove_server(place, name)(changed) == text


@settings(deadline=None)
@given(st.text(max_size=60), NAMES)
def test_any_text_is_edited_as_intended_or_rejected(text: str, name: str) -> None:
    for place in (CURSOR, CODEX, GOOSE, CONTINUE):
        try:
            changed = put_server(place, name, {"command": "x"})(text)
        except ToolcribError:
            continue
        assert name in entries(place, changed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "port = 1\n"),
        ("# mine\n", "port = 1\n\n# mine\n"),
        ("port = 2 # old\nhost = 'x'", "port = 1 # old\nhost = 'x'"),
        ("host = 'x'", "host = 'x'\nport = 1\n"),
        ("a = 1\r\n[t]\r\nport = 5\r\n", "a = 1\r\nport = 1\r\n[t]\r\nport = 5\r\n"),
        ("[t]\nport = 5\n", "port = 1\n\n[t]\nport = 5\n"),
        ('a = """\nport = 7\n"""\n', 'a = """\nport = 7\n"""\nport = 1\n'),
    ],
)
def test_key_outside_of_all_tables_is_set_and_the_rest_is_kept(text: str, expected: str) -> None:
    assert toml_text.set_top_level(text, "port", 1) == expected
    assert tomllib.loads(expected)["port"] == 1
