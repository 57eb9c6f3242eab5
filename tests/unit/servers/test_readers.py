"""What each client's fields mean, and how one entry is judged."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.files.reading import FileText
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.servers.readers.apps import CLIENTS, FORMATS
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.fields import Judged, judge
from toolcrib.servers.readers.read import ConfigFile, FileReading, read_content


def read(client: str, raw: Any) -> Judged:
    """Judge one entry of a client."""
    return judge("s", raw, CLIENTS[client], DefinitionSource(client, "user", "file", 1))


def usable(client: str, raw: Any) -> ServerSpec:
    """The definition it gives."""
    judged = read(client, raw)
    assert judged.spec is not None, judged.problems
    return judged.spec


def reading(client: str, text: str, name: str = "mcp.json") -> FileReading:
    """Read a whole text."""
    place = ConfigFile(client, "user", Path(name))
    return read_content(place, FileText(text, False, ""), ReadingContext(place.file))


@pytest.mark.parametrize(
    ("client", "raw", "kind"),
    [
        ("vscode", {"type": "http", "url": "https://x"}, "http"),
        ("gemini", {"httpUrl": "https://x"}, "http"),
        ("gemini", {"url": "https://x", "type": "sse"}, "sse"),
        ("qwen", {"url": "https://x", "type": "http"}, "http"),
        ("qwen", {"url": "https://x"}, "sse"),
        ("qwen", {"httpUrl": "https://x"}, "http"),
        ("cline", {"url": "https://x"}, "sse"),
        ("cline", {"type": "streamableHttp", "url": "https://x"}, "http"),
        ("cline", {"transport": {"type": "sse", "url": "https://x"}, "disabled": False}, "sse"),
        ("roo", {"type": "streamable-http", "url": "https://x"}, "http"),
        ("windsurf", {"serverUrl": "https://x"}, "http"),
        ("antigravity", {"serverURL": "https://x"}, "http"),
        ("goose", {"type": "streamable_http", "uri": "https://x"}, "http"),
        ("opencode", {"type": "remote", "url": "https://x"}, "http"),
        ("codex", {"url": "https://x"}, "http"),
        ("cursor", {"url": "https://x"}, "http"),
        ("toolcrib", {"url": "https://x"}, "http"),
    ],
)
def test_every_clients_way_to_write_a_remote_server_is_understood(client: str, raw: Any, kind: str) -> None:
    """The forms that other readers drop without a word."""
    spec = usable(client, raw)
    assert (spec.type, spec.url) == (kind, "https://x")


def test_codex_fields_are_honoured() -> None:
    """Tool lists, headers from variables, a bearer token by name, variables handed on, seconds."""
    spec = usable(
        "codex",
        {
            "url": "https://x",
            "http_headers": {"A": "1"},
            "env_http_headers": {"B": "VAR"},
            "bearer_token_env_var": "TOKEN",
            "enabled_tools": ["echo"],
            "disabled_tools": ["rm"],
            "tool_timeout_sec": 1.5,
            "startup_timeout_sec": 3,
        },
    )
    assert spec.headers == {"A": "1"}
    assert spec.header_env == {"B": "${VAR}", "Authorization": "Bearer ${TOKEN}"}
    assert (spec.tools.allow, spec.tools.deny, spec.timeout_ms) == (("echo",), ("rm",), 1500)
    assert spec.extra == {"startup_timeout_sec": 3}
    assert usable("codex", {"command": "x", "env_vars": ["A", {"name": "B"}]}).env_pass == ("A", "B")
    assert read("codex", {"url": "https://x", "bearer_token": "secret"}).spec is None


def test_opencode_zed_goose_and_continue_fields_are_honoured() -> None:
    """Names and shapes of their own."""
    opencode = usable("opencode", {"type": "local", "command": ["a", "b"], "environment": {"K": "v"}, "enabled": False})
    assert (opencode.command, opencode.args, opencode.env, opencode.enabled) == ("a", ("b",), {"K": "v"}, False)
    zed = usable("zed", {"command": {"path": "a", "args": ["b"], "env": {"K": "v"}}, "timeout": 2})
    assert (zed.command, zed.args, zed.env, zed.timeout_ms) == ("a", ("b",), {"K": "v"}, 2000)
    goose = usable("goose", {"type": "stdio", "cmd": "a", "envs": {"K": "v"}, "env_keys": ["S"], "available_tools": []})
    assert (goose.command, goose.env, goose.env_pass, goose.tools.allow) == ("a", {"K": "v"}, ("S",), None)
    cont = usable(
        "continue",
        {"name": "c", "type": "sse", "url": "https://x", "apiKey": "k", "requestOptions": {"headers": {"A": "1"}}},
    )
    assert cont.headers == {"Authorization": "Bearer k", "A": "1"}


UNUSABLE: list[tuple[Any, str]] = [
    (None, "not an object"),
    ([], "not an object"),
    ({}, 'neither "command" nor "url"'),
    ({"command": "x", "url": "https://x"}, "both"),
    ({"type": "http", "command": "x"}, 'requires "url"'),
    ({"type": "stdio", "url": "https://x"}, 'requires "command"'),
    ({"type": "ws", "url": "https://x"}, "unknown type"),
    ({"command": 5}, "must be text"),
    ({"command": "  "}, 'neither "command" nor "url"'),
    ({"command": "x", "args": "y"}, "must be a list"),
    ({"command": "x", "args": [{}]}, "only contain text"),
    ({"command": "x", "env": []}, "must be an object"),
    ({"command": "x", "env": {"A": {}}}, "only contain text"),
    ({"url": "ftp://x"}, "http:// or https://"),
    ({"url": "file:///etc/passwd"}, "http:// or https://"),
    ({"command": "x", "enabled": "maybe"}, "true or false"),
]


@pytest.mark.parametrize(("raw", "reason"), UNUSABLE)
def test_an_entry_that_cannot_be_used_says_why(raw: Any, reason: str) -> None:
    """The message begins as people may search for it."""
    judged = read("toolcrib", raw)
    assert judged.spec is None
    assert judged.problems[0].message.startswith('Invalid server config: Server "s": ')
    assert reason in judged.problems[0].message


def test_both_switches_turn_a_server_off_whatever_the_client() -> None:
    """Some clients ignore them and connect; here off is off, and it is said."""
    for raw in ({"command": "x", "enabled": False}, {"command": "x", "disabled": True}):
        judged = read("claude-code", raw)
        assert judged.spec is not None
        assert not judged.spec.enabled
        assert [problem.code for problem in judged.problems] == ["server.switch_ignored"]


def test_approval_lists_and_helpers_are_shown_and_never_applied() -> None:
    """They are for the other tool."""
    judged = read("kiro", {"command": "x", "autoApprove": ["rm"], "headersHelper": "print-it"})
    assert [problem.code for problem in judged.problems] == ["server.auto_approve", "server.helper"]
    assert judged.spec is not None
    assert judged.spec.extra == {"autoApprove": ["rm"], "headersHelper": "print-it"}


def test_what_is_not_understood_is_kept_and_reported() -> None:
    """Nothing is dropped without a word; notes to people need none."""
    judged = read("cursor", {"command": "x", "flavour": "sour", "_note": "mine", "description": "d"})
    assert judged.spec is not None
    assert judged.spec.extra == {"flavour": "sour", "_note": "mine", "description": "d"}
    assert [(problem.code, "flavour" in problem.message) for problem in judged.problems] == [
        ("server.field_unknown", True)
    ]


def test_numbers_in_the_environment_become_text_and_an_empty_value_is_not_set() -> None:
    """As VS Code means it; the number itself may be a secret and is not told."""
    judged = read("vscode", {"command": "x", "env": {"A": 12345678, "B": True, "C": None, "D": "d"}})
    assert judged.spec is not None
    assert judged.spec.env == {"A": "12345678", "B": "true", "D": "d"}
    assert all(problem.code == "server.value_type" for problem in judged.problems)
    assert "12345678" not in repr(judged.problems)


def test_sign_in_fields_of_clients_are_understood() -> None:
    """Stored credentials, client ids and scopes."""
    own = usable("toolcrib", {"type": "http", "url": "https://x", "auth": {"type": "oauth", "credentialId": "c"}})
    assert own.auth is not None
    assert own.auth.credential_id == "c"
    zed = usable("zed", {"url": "https://x", "oauth": {"client_id": "i", "client_secret": "hidden"}})
    assert zed.auth is not None
    assert (zed.auth.client_id, "hidden" in repr(zed)) == ("i", False)
    assert usable("opencode", {"type": "remote", "url": "https://x", "oauth": False}).auth is None


def test_parts_of_a_tool_that_are_no_servers_are_named() -> None:
    """Goose's own extensions and Zed's."""
    goose = reading(
        "goose", "extensions:\n  dev:\n    type: builtin\n  x:\n    type: stdio\n    cmd: a\n", "config.yaml"
    )
    assert [entry.name for entry in goose.entries] == ["x"]
    assert [(problem.code, problem.line) for problem in goose.problems] == [("server.built_in", 2)]


def test_the_wrong_root_key_and_a_bare_map_are_found_and_said() -> None:
    """The servers are not lost."""
    wrong = reading("vscode", '{"mcpServers": {"a": {"command": "x"}}}')
    assert [entry.name for entry in wrong.entries if entry.spec] == ["a"]
    assert [problem.code for problem in wrong.problems] == ["config.layout"]
    bare = reading("claude-code", '{"a": {"command": "x"}}')
    assert [(entry.name, entry.spec) for entry in bare.entries] == [("a", None)]
    assert [entry.spec is not None for entry in reading("copilot-cli", '{"a": {"command": "x"}}').entries] == [True]


def test_what_the_client_itself_cannot_read_is_said() -> None:
    """Comments break Claude Code, a byte order mark breaks Gemini."""
    text = '{"mcpServers": {"a": {"command": "x"},}} // end'
    assert [problem.code for problem in reading("claude-code", text).problems] == ["config.dialect"] * 2
    assert reading("vscode", text.replace("mcpServers", "servers")).problems == ()
    marked = read_content(
        ConfigFile("gemini", "user", Path("settings.json")), FileText("{}", True, ""), ReadingContext(Path("x"))
    )
    assert [problem.code for problem in marked.problems] == ["config.dialect"]


def test_a_key_written_twice_is_reported_with_its_line() -> None:
    """The later one counts, as in every client."""
    text = '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}'
    found = reading("cursor", text)
    assert [(problem.code, problem.line) for problem in found.problems] == [("config.duplicate_key", 3)]
    assert [(entry.raw["command"], entry.source.line) for entry in found.entries] == [("y", 3)]


def test_toml_of_the_newer_kind_is_read() -> None:
    """Codex accepts line breaks inside inline tables."""
    found = reading("codex", '[mcp_servers.a]\ncommand = "x"\nenv = {A = "1",\n  B = "2",\n}\n', "config.toml")
    assert [entry.spec.env for entry in found.entries if entry.spec] == [{"A": "1", "B": "2"}]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "x: !!python/object/apply:os.system ['true']",
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "---\na: 1\n---\nb: 2\n",
        "{" * 3000,
        "\t- x",
    ],
)
def test_hostile_yaml_is_a_problem_or_plain_data(text: str) -> None:
    """No object is made, no alias unfolds without bound."""
    found = reading("goose", text, "config.yaml")
    assert found.broken or found.entries == ()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 5000,
        '"' * 50_000,
        "/*" * 50_000,
        '"\\' * 50_000,
        "1" * 5000,
        "NaN",
        '{"mcpServers": {"\\ud800": {"command": "\\ud800"}}}',
    ],
)
def test_hostile_json_is_a_problem(text: str) -> None:
    """Deep nesting, endless strings and comments, numbers without end, half characters."""
    found = reading("cursor", text)
    assert found.problems or all(entry.spec is None for entry in found.entries)


@settings(deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.text(max_size=80))
def test_any_text_in_any_format_gives_a_reading(client: str, text: str) -> None:
    """Reading never raises."""
    for name in ("x.json", "x.toml", "x.yaml"):
        reading(client, text, name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "command",
                    "args",
                    "env",
                    "url",
                    "type",
                    "headers",
                    "tools",
                    "timeout",
                    "oauth",
                    "auth",
                    "enabled",
                    "x",
                    "transport",
                    "httpUrl",
                    "requestOptions",
                    "env_vars",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(CLIENTS)), JSON)
def test_any_value_as_an_entry_is_a_definition_or_a_problem(client: str, raw: Any) -> None:
    """Judging never raises, and an entry without definition always says why."""
    judged = read(client, raw)
    assert judged.spec is not None or judged.problems


WRONG_KEYS = [
    ("claude-settings", "settings.json", '{\n"mcpServers": {\n"x": {"command": "y"}}}', ".mcp.json"),
    ("amp", "settings.json", '{\n"mcpServers": {\n"x": {"command": "y"}}}', '"amp.mcpServers"'),
    ("amp", "settings.json", '{"amp":\n{"mcpServers": {\n"x": {"command": "y"}}}}', '"amp.mcpServers"'),
    ("codex", "config.toml", '\n\n[mcpServers.x]\ncommand = "y"\n', '"mcp_servers"'),
    ("codex", "config.toml", '\n\n[mcp.servers.x]\ncommand = "y"\n', '"mcp_servers"'),
    ("gemini", "settings.json", '{\n"mcp_servers": {\n"x": {"command": "y"}}}', '"mcpServers"'),
    ("opencode", "opencode.json", '{\n"mcpServers": {\n"x": {"command": "y"}}}', '"mcp"'),
    ("zed", "settings.json", '{\n"mcpServers": {\n"x": {"command": "y"}}}', '"context_servers"'),
    ("crush", "crush.json", '{\n"mcpServers": {\n"x": {"command": "y"}}}', '"mcp"'),
    ("auggie", "settings.json", '{\n"servers": {\n"x": {"command": "y"}}}', '"mcpServers"'),
]


@pytest.mark.parametrize(("format", "name", "text", "fix"), WRONG_KEYS)
def test_server_under_a_key_that_its_app_does_not_read_is_a_problem_with_line_and_fix(
    format: str, name: str, text: str, fix: str
) -> None:
    [entry] = reading(format, text, name).entries
    [problem, *_] = entry.problems
    assert (entry.spec, problem.code, problem.line) == (None, "server.misplaced", 3)
    assert "does not read" in problem.message
    assert fix in (problem.hint or "")


def test_server_under_a_wrong_key_beside_the_right_one_is_reported() -> None:
    found = reading("claude-code", '{"mcpServers": {"a": {"command": "x"}}, "servers": {"b": {"command": "y"}}}')
    assert [(entry.name, entry.spec is not None) for entry in found.entries] == [("a", True), ("b", False)]


@pytest.mark.parametrize(
    ("raw", "kind", "ignored"),
    [
        ({"type": "stdio", "command": "x", "url": "https://x"}, "stdio", '"url" is ignored'),
        ({"type": "http", "command": "x", "url": "https://x"}, "http", '"command" is ignored'),
        ({"type": "sse", "command": "", "url": "https://x"}, "sse", None),
        ({"command": "x", "url": ""}, "stdio", None),
    ],
)
def test_declared_type_decides_between_command_and_url(raw: Any, kind: str, ignored: str | None) -> None:
    judged = read("crush", raw)
    assert judged.spec is not None
    assert (judged.spec.type, judged.spec.command is None, judged.spec.url is None) == (
        kind,
        kind != "stdio",
        kind == "stdio",
    )
    assert [ignored in problem.message for problem in judged.problems if ignored] == ([True] if ignored else [])


def registry_entry(**described: Any) -> ServerSpec:
    """The first server of a `server.json`."""
    found = reading("registry", json.dumps({"name": "io.x/y", **described}), "server.json")
    assert found.entries[0].spec is not None, found.entries[0].problems
    return found.entries[0].spec


def test_registry_variables_fill_urls_and_headers_or_become_variables() -> None:
    variables = {"region": {"default": "eu"}, "tenant-id": {"isRequired": True}}
    token = {"key": {"isRequired": True, "isSecret": True}}
    headers = [{"name": "X-Key", "value": "Bearer {key}", "variables": token}, {"name": "X-Other"}]
    remote = {"type": "streamable-http", "url": "https://{region}.x.example/{tenant-id}/mcp", "variables": variables}
    spec = registry_entry(remotes=[{**remote, "headers": headers}])
    assert (spec.type, spec.url, spec.headers) == (
        "http",
        "https://eu.x.example/${tenant_id}/mcp",
        {"X-Key": "Bearer ${key}"},
    )


def test_registry_package_in_a_container_gets_its_variables_by_name() -> None:
    package = {"registryType": "oci", "identifier": "ghcr.io/x/y", "version": "1.2"}
    env = [{"name": "TOKEN", "isRequired": True, "isSecret": True}, {"name": "MODE", "default": "fast"}]
    spec = registry_entry(packages=[{**package, "environmentVariables": env}])
    assert spec.args == ("run", "-i", "--rm", "-e", "TOKEN", "-e", "MODE", "ghcr.io/x/y:1.2")
    assert spec.env == {"TOKEN": "${TOKEN}", "MODE": "fast"}


def test_registry_arguments_that_are_required_become_variables() -> None:
    arguments = [
        {"type": "positional", "valueHint": "target-dir", "isRequired": True},
        {"type": "positional", "valueHint": "optional"},
        {
            "type": "named",
            "name": "--port",
            "format": "number",
            "value": "{port}",
            "variables": {"port": {"default": 8}},
        },
        {"type": "named", "name": "--quiet", "format": "boolean"},
    ]
    spec = registry_entry(packages=[{"registryType": "npm", "identifier": "p", "packageArguments": arguments}])
    assert spec.args == ("-y", "p", "${target_dir}", "--port", "8", "--quiet")


def test_registry_package_that_serves_http_is_a_url_with_a_note() -> None:
    transport = {
        "type": "streamable-http",
        "url": "http://127.0.0.1:{port}/mcp",
        "variables": {"port": {"default": 80}},
    }
    package = {"registryType": "npm", "identifier": "p", "transport": transport}
    found = reading("registry", json.dumps({"name": "n", "packages": [package]}), "server.json")
    assert found.entries[0].spec is not None
    assert found.entries[0].spec.url == "http://127.0.0.1:80/mcp"
    assert [problem.code for problem in found.problems] == ["config.note"]


@pytest.mark.parametrize(("client", "ignores"), [("kilo", True), ("kilo-legacy", True), ("opencode", False)])
def test_cwd_that_an_app_ignores_is_reported(client: str, ignores: bool) -> None:
    judged = read(client, {"type": "stdio", "command": ["x"] if client != "kilo-legacy" else "x", "cwd": "/w"})
    assert judged.spec is not None
    assert judged.spec.cwd == "/w"
    assert any('ignores "cwd"' in problem.message for problem in judged.problems) == ignores
