"""Diffs never show a secret, in any format and quoting; a masked definition can be sent back."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.masking.restore import restore_masked
from toolcrib.servers.edit.entries import ChangeText, put_server, remove_server
from toolcrib.servers.edits import masked_diff, together
from toolcrib.servers.masking import is_reference, mask_definition
from toolcrib.servers.readers.read import ConfigFile

SECRETS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=16, max_size=40).filter(
    lambda text: not is_reference(text)  # a reference is not a secret and is shown
)
PLACES = (
    ConfigFile("toolcrib", "user", Path("mcp.json")),
    ConfigFile("codex", "user", Path("config.toml")),
    ConfigFile("goose", "user", Path("config.yaml")),
)
ENV = {"toolcrib": "env", "codex": "env", "goose": "envs"}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.format)
@given(secret=SECRETS, other=SECRETS)
@settings(deadline=None)
def test_diff_shows_no_secret(place: ConfigFile, secret: str, other: str) -> None:
    entry = {"command": "x", "cmd": "x", "type": "stdio", ENV[place.format]: {"API_TOKEN": secret, "b": "on"}}
    before = put_server(place, "first", entry)("")
    after = put_server(place, "second", {**entry, ENV[place.format]: {"SECRET": other}})(before)
    gone = remove_server(place, "first")(after)
    for old, new in (("", before), (before, after), (after, gone), (gone, "")):
        shown = masked_diff(place, place.file, old, new)
        for hidden in (secret, other):
            assert hidden not in shown
            assert json.dumps(hidden)[1:-1] not in shown
        assert "****" in shown or old == before


def test_secret_on_a_changed_line_is_masked() -> None:
    place = PLACES[0]
    before = '{"oauth": {"accessToken": "s\\u0065cret-value-of-long-length-1"}, "mcpServers": {}}'
    after = before.replace('"mcpServers": {}', '"mcpServers": {"a": {"command": "x"}}')
    shown = masked_diff(place, place.file, before, after)
    assert "cret-value" not in shown
    assert '"a": {"command": "x"}' in shown


def test_diff_has_only_changed_lines_and_marks_a_new_file() -> None:
    place = PLACES[0]
    assert masked_diff(place, place.file, "", "{}\n") == "--- /dev/null\n+++ mcp.json\n@@ -0,0 +1 @@\n+{}"
    text = '{\n  "a": 1,\n  "b": 2\n}\n'
    assert masked_diff(place, place.file, text, text.replace("2", "3")).splitlines()[3:] == ['-  "b": 2', '+  "b": 3']
    assert masked_diff(place, place.file, text, text) == ""


def test_diff_of_an_unreadable_text_shows_no_content() -> None:
    place = PLACES[0]
    shown = masked_diff(place, place.file, "token = secret", "{}")
    assert "secret" not in shown.replace("secrets", "")


def test_changes_are_combined_in_order() -> None:
    changes: list[ChangeText] = [lambda text: text + "a", lambda text: text + "b"]
    assert together(iter(changes))("") == "ab"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
DEFINITIONS = st.dictionaries(st.sampled_from(["env", "headers", "args", "url", "command", "token", "x"]), VALUES)


@given(kept=DEFINITIONS)
@settings(deadline=None)
def test_masked_definition_sent_back_restores_the_stored_one(kept: dict[str, object]) -> None:
    shown = mask_definition(kept)
    assert restore_masked(shown, shown, kept) == kept


def test_changed_values_are_kept_when_masked_ones_are_restored() -> None:
    kept = {"env": {"A_TOKEN": "aaaaaaaaaaaaaaaaaaaa", "B": "bbbbbbbb"}, "args": ["--key", "kkkkkkkkkkkkkkkkkkkk"]}
    shown = mask_definition(kept)
    sent = {"env": {"A_TOKEN": shown["env"]["A_TOKEN"], "B": "new"}, "args": ["first", *shown["args"]], "cwd": "/x"}
    assert restore_masked(sent, shown, kept) == {
        "env": {"A_TOKEN": "aaaaaaaaaaaaaaaaaaaa", "B": "new"},
        "args": ["first", "--key", "kkkkkkkkkkkkkkkkkkkk"],
        "cwd": "/x",
    }


def test_equal_masks_are_restored_by_their_neighbours() -> None:
    kept = {"args": ["--token", "first", "run", "--key", "second"]}
    shown = mask_definition(kept)
    assert shown["args"] == ["--token", "****", "run", "--key", "****"]
    assert restore_masked({"args": [*shown["args"], "-v"]}, shown, kept)["args"] == [*kept["args"], "-v"]
    assert restore_masked({"args": ["run", "--key", "****"]}, shown, kept)["args"] == ["run", "--key", "second"]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.format)
def test_secret_in_arguments_is_masked_in_a_diff(place: ConfigFile) -> None:
    entry = {"command": "x", "cmd": "x", "type": "stdio", "args": ["--token", "hunter2hunter2", "--pin", 123456]}
    shown = masked_diff(place, place.file, "", put_server(place, "first", entry)(""))
    assert "--token" in shown
    assert "hunter2hunter2" not in shown
    assert "123456" not in shown


@pytest.mark.parametrize(
    ("format", "file", "before", "path"),
    [
        ("claude-code", ".mcp.json", {"servers": {"b": {"command": "y"}}}, ("mcpServers", "a")),
        ("vscode", "mcp.json", {"mcpServers": {"a": {"command": "y"}}}, ("servers", "a")),
        ("opencode", "opencode.json", {"mcpServers": {"b": {"command": "y"}}}, ("mcp", "a")),
        ("opencode", "opencode.json", {"mcp": {"servers": {"b": {"type": "local"}}}}, ("mcp", "servers", "a")),
        ("amp", "settings.json", {"mcpServers": {"a": {"command": "y"}}}, ("amp.mcpServers", "a")),
        ("cursor", "mcp.json", {"b": {"command": "y"}}, ("mcpServers", "a")),
    ],
)
def test_server_is_written_where_its_app_reads_it(
    format: str, file: str, before: dict[str, object], path: tuple[str, ...]
) -> None:
    changed = json.loads(put_server(ConfigFile(format, "user", Path(file)), "a", {"command": "x"})(json.dumps(before)))
    held = changed
    for key in path:
        held = held[key]
    assert held == {"command": "x"}
    assert {key: changed[key] for key in before if key != path[0]} == {
        key: before[key] for key in before if key != path[0]
    }
