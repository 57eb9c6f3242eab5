"""Pasted text becomes a server or a problem."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.servers.paste import recognise

CASES = [
    ("https://mcp.notion.com/mcp", "notion", "https://mcp.notion.com/mcp"),
    ("http://127.0.0.1:3000/mcp", "127-0-0-1", "http://127.0.0.1:3000/mcp"),
    ("http://localhost:3000/mcp", "localhost", "http://localhost:3000/mcp"),
    ("npx -y @modelcontextprotocol/server-github", "github", "npx"),
    ("$ uvx mcp-server-git --repository .", "git", "uvx"),
    ("docker run -i --rm ghcr.io/github/github-mcp-server", "github", "docker"),
    ("/usr/local/bin/my-server --stdio", "my", "/usr/local/bin/my-server"),
    ('{"mcpServers": {"a": {"command": "x"}}}', "a", "x"),
    ('{"servers": {"a": {"type": "http", "url": "https://x"}}, "inputs": []}', "a", "https://x"),
    ('"ctx": {"command": "npx", "args": ["q"]},', "ctx", "npx"),
    ('{"a": {"command": "x"}} // mine', "a", "x"),
    ('{"command": "npx", "args": ["-y", "@a/foo-mcp"]}', "foo", "npx"),
    ('{"mcp": {"z": {"type": "local", "command": ["a", "b"]}}}', "z", "a"),
    ('{"context_servers": {"q": {"command": {"path": "p", "args": []}}}}', "q", "p"),
    ('[mcp_servers.foo]\ncommand = "x"\nargs = ["a"]', "foo", "x"),
    ("extensions:\n  foo:\n    type: stdio\n    cmd: x\n", "foo", "x"),
    ("mcpServers:\n  - name: m\n    command: node\n", "m", "node"),
    ("claude mcp add --transport http linear https://mcp.linear.app/mcp", "linear", "https://mcp.linear.app/mcp"),
    ("claude mcp add gh -e K=v -- npx -y foo", "gh", "npx"),
    ("codex mcp add ctx -- npx -y foo", "ctx", "npx"),
    ('claude mcp add-json gh \'{"type":"http","url":"https://z"}\'', "gh", "https://z"),
    ("cursor://anysphere.cursor-deeplink/mcp/install?name=pw&config=eyJjb21tYW5kIjoibnB4In0=", "pw", "npx"),
    ("vscode:mcp/install?%7B%22name%22%3A%22x%22%2C%22command%22%3A%22y%22%7D", "x", "y"),
]


@pytest.mark.parametrize(("text", "name", "endpoint"), CASES)
def test_snippets_urls_command_lines_and_links_are_recognised(text: str, name: str, endpoint: str) -> None:
    (server,) = recognise(text).servers
    assert (server.name, server.command or server.url) == (name, endpoint)


def test_variables_before_a_command_and_headers_after_a_url_are_kept() -> None:
    (server,) = recognise("TOKEN=abc LEVEL=debug npx -y pkg").servers
    assert (server.env, server.command, server.args) == ({"TOKEN": "abc", "LEVEL": "debug"}, "npx", ("-y", "pkg"))
    (server,) = recognise('claude mcp add -t http l https://x -H "A: b" --header "C: d"').servers
    assert server.headers == {"A": "b", "C": "d"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "{",
        "{}",
        "{bad",
        '"unclosed',
        "hello\nworld and more",
        "'open quote",
        '{"mcpServers": {"a": {}}}',
        "cursor://x?config=%%%",
    ],
)
def test_text_without_a_server_is_a_problem(text: str) -> None:
    pasted = recognise(text)
    assert pasted.servers == ()
    assert pasted.problems


def test_pasted_value_is_never_a_secret_command() -> None:
    """`!` runs a command only if the owner wrote it in the crib's own file."""
    (server,) = recognise('{"mcpServers": {"a": {"command": "x", "env": {"K": "!id"}}}}').servers
    assert server.variables not in ("toolcrib", "oh-my-pi")


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_yields_servers_or_problems(text: str) -> None:
    pasted = recognise(text)
    assert pasted.servers or pasted.problems
