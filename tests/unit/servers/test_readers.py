"""The meaning of each client's fields, and the judgement of single entries."""

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


def definition_of(client: str, raw: Any) -> ServerSpec:
    """Return the definition of a valid entry."""
    judged = read(client, raw)
    assert judged.spec is not None, judged.problems
    return judged.spec


def read_text(client: str, text: str, name: str = "mcp.json") -> FileReading:
    """Read a complete text."""
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
def test_every_clients_notation_of_a_remote_server_is_understood(client: str, raw: Any, kind: str) -> None:
    """Other readers drop some of these forms silently."""
    spec = definition_of(client, raw)
    assert (spec.type, spec.url) == (kind, "https://x")


def test_codex_fields_are_read() -> None:
    """Tool lists, headers from variables, a bearer token by name, inherited variables, seconds."""
    spec = definition_of(
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
    assert definition_of("codex", {"command": "x", "env_vars": ["A", {"name": "B"}]}).env_pass == ("A", "B")
    assert read("codex", {"url": "https://x", "bearer_token": "secret"}).spec is None


def test_opencode_zed_goose_and_continue_fields_are_read() -> None:
    opencode = definition_of(
        "opencode", {"type": "local", "command": ["a", "b"], "environment": {"K": "v"}, "enabled": False}
    )
    assert (opencode.command, opencode.args, opencode.env, opencode.enabled) == ("a", ("b",), {"K": "v"}, False)
    zed = definition_of("zed", {"command": {"path": "a", "args": ["b"], "env": {"K": "v"}}, "timeout": 2})
    assert (zed.command, zed.args, zed.env, zed.timeout_ms) == ("a", ("b",), {"K": "v"}, 2000)
    goose = definition_of(
        "goose", {"type": "stdio", "cmd": "a", "envs": {"K": "v"}, "env_keys": ["S"], "available_tools": []}
    )
    assert (goose.command, goose.env, goose.env_pass, goose.tools.allow) == ("a", {"K": "v"}, ("S",), None)
    cont = definition_of(
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
def test_invalid_entry_has_a_problem_with_the_reason(raw: Any, reason: str) -> None:
    """The beginning of the message is documented."""
    judged = read("toolcrib", raw)
    assert judged.spec is None
    assert judged.problems[0].message.startswith('Invalid server config: Server "s": ')
    assert reason in judged.problems[0].message


def test_both_switches_disable_a_server_for_any_client() -> None:
    """Some clients ignore the switch and connect; here it disables the server, with a problem."""
    for raw in ({"command": "x", "enabled": False}, {"command": "x", "disabled": True}):
        judged = read("claude-code", raw)
        assert judged.spec is not None
        assert not judged.spec.enabled
        assert [problem.code for problem in judged.problems] == ["server.switch_ignored"]


def test_approval_lists_and_helpers_are_reported_and_never_applied() -> None:
    """They apply only in the app."""
    judged = read("kiro", {"command": "x", "autoApprove": ["rm"], "headersHelper": "print-it"})
    assert [problem.code for problem in judged.problems] == ["server.auto_approve", "server.helper"]
    assert judged.spec is not None
    assert judged.spec.extra == {"autoApprove": ["rm"], "headersHelper": "print-it"}


def test_unknown_fields_are_kept_and_reported() -> None:
    """Nothing is dropped silently; comments and descriptions need no problem."""
    judged = read("cursor", {"command": "x", "flavour": "sour", "_note": "mine", "description": "d"})
    assert judged.spec is not None
    assert judged.spec.extra == {"flavour": "sour", "_note": "mine", "description": "d"}
    assert [(problem.code, "flavour" in problem.message) for problem in judged.problems] == [
        ("server.field_unknown", True)
    ]


def test_numbers_in_the_environment_become_text_and_null_is_unset() -> None:
    """As in VS Code; the message does not repeat the number, which may be a secret."""
    judged = read("vscode", {"command": "x", "env": {"A": 12345678, "B": True, "C": None, "D": "d"}})
    assert judged.spec is not None
    assert judged.spec.env == {"A": "12345678", "B": "true", "D": "d"}
    assert all(problem.code == "server.value_type" for problem in judged.problems)
    assert "12345678" not in repr(judged.problems)


def test_sign_in_fields_of_clients_are_read() -> None:
    """Stored credentials, client ids and scopes."""
    own = definition_of(
        "toolcrib", {"type": "http", "url": "https://x", "auth": {"type": "oauth", "credentialId": "c"}}
    )
    assert own.auth is not None
    assert own.auth.credential_id == "c"
    zed = definition_of("zed", {"url": "https://x", "oauth": {"client_id": "i", "client_secret": "hidden"}})
    assert zed.auth is not None
    assert (zed.auth.client_id, "hidden" in repr(zed)) == ("i", False)
    assert definition_of("opencode", {"type": "remote", "url": "https://x", "oauth": False}).auth is None


def test_parts_of_an_app_that_are_not_servers_are_reported() -> None:
    """Extensions of Goose and Zed."""
    goose = read_text(
        "goose", "extensions:\n  dev:\n    type: builtin\n  x:\n    type: stdio\n    cmd: a\n", "config.yaml"
    )
    assert [entry.name for entry in goose.entries] == ["x"]
    assert [(problem.code, problem.line) for problem in goose.problems] == [("server.built_in", 2)]


def test_wrong_root_key_and_bare_map_are_found_and_reported() -> None:
    """The servers are not lost."""
    wrong = read_text("vscode", '{"mcpServers": {"a": {"command": "x"}}}')
    assert [entry.name for entry in wrong.entries if entry.spec] == ["a"]
    assert [problem.code for problem in wrong.problems] == ["config.layout"]
    bare = read_text("claude-code", '{"a": {"command": "x"}}')
    assert [(entry.name, entry.spec) for entry in bare.entries] == [("a", None)]
    assert [entry.spec is not None for entry in read_text("copilot-cli", '{"a": {"command": "x"}}').entries] == [True]


def test_syntax_that_the_client_itself_cannot_read_is_reported() -> None:
    """Comments break Claude Code; a byte order mark breaks Gemini."""
    text = '{"mcpServers": {"a": {"command": "x"},}} // end'
    assert [problem.code for problem in read_text("claude-code", text).problems] == ["config.dialect"] * 2
    assert read_text("vscode", text.replace("mcpServers", "servers")).problems == ()
    marked = read_content(
        ConfigFile("gemini", "user", Path("settings.json")), FileText("{}", True, ""), ReadingContext(Path("x"))
    )
    assert [problem.code for problem in marked.problems] == ["config.dialect"]


def test_repeated_key_is_reported_with_its_line() -> None:
    """The later one counts, as in every client."""
    text = '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}'
    found = read_text("cursor", text)
    assert [(problem.code, problem.line) for problem in found.problems] == [("config.duplicate_key", 3)]
    assert [(entry.raw["command"], entry.source.line) for entry in found.entries] == [("y", 3)]


def test_toml_1_1_is_read() -> None:
    """Codex accepts line breaks inside inline tables."""
    found = read_text("codex", '[mcp_servers.a]\ncommand = "x"\nenv = {A = "1",\n  B = "2",\n}\n', "config.toml")
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
    """No object is constructed, and aliases are not expanded without bound."""
    found = read_text("goose", text, "config.yaml")
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
    """Deep nesting, endless strings and comments, long numbers, unpaired surrogates."""
    found = read_text("cursor", text)
    assert found.problems or all(entry.spec is None for entry in found.entries)


@settings(deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.text(max_size=80))
def test_any_text_in_any_format_yields_a_reading(client: str, text: str) -> None:
    for name in ("x.json", "x.toml", "x.yaml"):
        read_text(client, text, name)


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
    """An entry without a definition always has a problem."""
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
def test_server_under_a_key_that_its_app_ignores_is_a_problem_with_line_and_fix(
    format: str, name: str, text: str, fix: str
) -> None:
    [entry] = read_text(format, text, name).entries
    [problem, *_] = entry.problems
    assert (entry.spec, problem.code, problem.line) == (None, "server.misplaced", 3)
    assert "does not read" in problem.message
    assert fix in (problem.hint or "")


def test_server_under_a_wrong_key_beside_the_right_one_is_reported() -> None:
    found = read_text("claude-code", '{"mcpServers": {"a": {"command": "x"}}, "servers": {"b": {"command": "y"}}}')
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
    """Return the first server of a `server.json`."""
    found = read_text("registry", json.dumps({"name": "io.x/y", **described}), "server.json")
    assert found.entries[0].spec is not None, found.entries[0].problems
    return found.entries[0].spec


def test_registry_variables_are_filled_in_or_become_variables() -> None:
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


def test_required_registry_arguments_become_variables() -> None:
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
    found = read_text("registry", json.dumps({"name": "n", "packages": [package]}), "server.json")
    assert found.entries[0].spec is not None
    assert found.entries[0].spec.url == "http://127.0.0.1:80/mcp"
    assert [problem.code for problem in found.problems] == ["config.note"]


@pytest.mark.parametrize(("client", "ignores"), [("kilo", True), ("kilo-legacy", True), ("opencode", False)])
def test_cwd_that_an_app_ignores_is_reported(client: str, ignores: bool) -> None:
    judged = read(client, {"type": "stdio", "command": ["x"] if client != "kilo-legacy" else "x", "cwd": "/w"})
    assert judged.spec is not None
    assert judged.spec.cwd == "/w"
    assert any('ignores "cwd"' in problem.message for problem in judged.problems) == ignores
