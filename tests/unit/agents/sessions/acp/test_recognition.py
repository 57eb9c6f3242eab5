"""Which tool a call is attributed to; the announcements are those observed from the four agents."""

import pytest

from toolcrib.agents.sessions.acp.recognition import Recognition
from toolcrib.model.json import JsonObject
from toolcrib.testing.runner_rig import ECHO

CLAUDE: JsonObject = {"claudeCode": {"toolName": "mcp__toolcrib__lab_echo"}}
READ: JsonObject = {"kind": "read", "title": "Read a"}


@pytest.fixture
def recognition() -> Recognition:
    """Return a recognition that knows `lab_echo`."""
    return Recognition({"lab_echo": ECHO}, "plain")


@pytest.mark.parametrize(
    "announced",
    [
        {"title": "anything", "kind": "other", "_meta": CLAUDE},
        {
            "title": "mcp.toolcrib.lab_echo",
            "kind": "execute",
            "_meta": {"is_mcp_tool_call": True},
            "rawInput": {"server": "toolcrib", "tool": "lab_echo", "arguments": {}},
        },
        {"title": "lab_echo (toolcrib MCP Server)", "kind": "other"},
        {"title": "toolcrib_lab_echo", "kind": "other"},
        {"title": "mcp__toolcrib__lab_echo"},
    ],
    ids=["claude", "codex", "gemini", "opencode", "others"],
)
def test_crib_tools_are_recognised_in_each_agents_announcement(recognition: Recognition, announced: JsonObject) -> None:
    assert recognition.crib_tool(announced) is ECHO


@pytest.mark.parametrize(
    "announced",
    [
        {"title": "mcp__toolcrib__lab_echo", "kind": "execute", "rawInput": {"command": "mcp__toolcrib__lab_echo"}},
        {"title": "toolcrib_lab_echo", "kind": "fetch"},
        {"title": "mcp__toolcrib__lab_echo", "kind": "other", "_meta": {"claudeCode": {"toolName": "Bash"}}},
        {"title": "x", "_meta": {"claudeCode": {"toolName": "mcp__other__lab_echo"}}},
        {"title": "x", "_meta": {"is_mcp_tool_call": True}, "rawInput": {"server": "other", "tool": "lab_echo"}},
        {"title": "x", "kind": "execute", "rawInput": {"server": "toolcrib", "tool": "lab_echo"}},
        {"title": "lab_echo", "kind": "other"},
        {"title": "toolcrib_lab_echo and more", "kind": "other"},
        {},
    ],
)
def test_text_that_a_model_could_write_is_not_recognised_as_a_crib_tool(
    recognition: Recognition, announced: JsonObject
) -> None:
    assert recognition.crib_tool(announced) is None


def test_arguments_are_unwrapped_from_the_announcement(recognition: Recognition) -> None:
    inner = {"text": "a"}
    assert recognition.crib_arguments({"server": "toolcrib", "tool": "lab_echo", "arguments": inner}) == inner
    assert recognition.crib_arguments(inner) == inner
    assert recognition.crib_arguments(None) == {}


@pytest.mark.parametrize(
    ("announced", "tool", "arguments"),
    [
        ({"_meta": {"claudeCode": {"toolName": "Agent"}}, "rawInput": {"prompt": "p"}}, "Task", {"prompt": "p"}),
        ({**READ, "locations": [{"path": "/p/a"}]}, "Read", {"file_path": "/p/a"}),
        ({**READ, "rawInput": {"filePath": "/p/a", "limit": 3}}, "Read",
         {"filePath": "/p/a", "limit": 3, "file_path": "/p/a"}),
        ({**READ, "locations": [{"path": "/p/a"}, {"path": "/etc/b"}]}, "Read",
         {"file_path": "", "paths": ["/p/a", "/etc/b"]}),
        ({**READ, "locations": [{"path": "/p/a"}], "rawInput": {"path": "/etc/b"}}, "Read",
         {"path": "/etc/b", "file_path": "", "paths": ["/p/a", "/etc/b"]}),
        ({"kind": "delete", "title": "rm", "locations": [{"path": "/p/a"}]}, "Bash",
         {"title": "rm", "paths": ["/p/a"]}),
        ({"kind": "edit", "title": "Edit"}, "Edit", {"file_path": ""}),
        ({"kind": "search", "title": "find"}, "Grep", {"path": ""}),
        ({"kind": "execute", "title": "t", "rawInput": {"command": ["sh", "-c", "a b"]}}, "Bash",
         {"command": "sh -c 'a b'"}),
        ({"kind": "execute", "title": "git status"}, "Bash", {"title": "git status"}),
        ({"kind": "delete", "title": "rm", "rawInput": {"path": "/p"}}, "Bash", {"title": "rm", "path": "/p"}),
        ({"kind": "other", "title": "odd"}, "Bash", {"title": "odd"}),
        ({"title": "odd"}, "Bash", {"title": "odd"}),
        ({"kind": "fetch", "title": "get", "rawInput": {"url": "u"}}, "WebFetch", {"title": "get", "url": "u"}),
    ],
)  # fmt: skip
def test_own_tools_have_the_names_and_arguments_used_by_rules(
    recognition: Recognition, announced: JsonObject, tool: str, arguments: JsonObject
) -> None:
    assert recognition.own_tool(announced) == tool
    assert recognition.own_arguments(tool, announced) == arguments


def test_title_of_a_gemini_command_is_the_command() -> None:
    gemini = Recognition({}, "gemini")
    assert gemini.own_arguments("Bash", {"kind": "execute", "title": "git status"}) == {"command": "git status"}
