"""Whatever is in the clipboard becomes a server or a reason why not."""

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
def test_snippets_addresses_command_lines_and_links_are_recognised(text: str, name: str, endpoint: str) -> None:
    """One server each, with a name and what it runs or reaches."""
    (server,) = recognise(text).servers
    assert (server.name, server.command or server.url) == (name, endpoint)


def test_variables_before_a_command_and_headers_after_an_address_are_kept() -> None:
    """They are part of what was meant."""
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
def test_what_is_no_server_says_why(text: str) -> None:
    """A problem instead of a guess."""
    pasted = recognise(text)
    assert pasted.servers == ()
    assert pasted.problems


def test_a_pasted_value_is_never_a_command_to_get_a_secret() -> None:
    """`!` means something in our own file only if the owner writes it there."""
    (server,) = recognise('{"mcpServers": {"a": {"command": "x", "env": {"K": "!id"}}}}').servers
    assert server.variables not in ("toolcrib", "oh-my-pi")


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_gives_servers_or_problems(text: str) -> None:
    """Recognising never raises."""
    pasted = recognise(text)
    assert pasted.servers or pasted.problems
