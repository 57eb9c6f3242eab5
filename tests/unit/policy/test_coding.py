"""The coding agent's own tools: what their calls touch, and what each mode says to that."""

import pytest

from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Origin, Rule, Verdict
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Marks, Tool, ToolRef
from toolcrib.policy.coding import is_inside, named_paths
from toolcrib.policy.decide import Grants, decide
from toolcrib.policy.rules import Rules

INSIDE, OUTSIDE = ("/p/a.py",), ("/p/a.py", "/etc/passwd")


def verdict(
    name: str, mode: Mode, paths: tuple[str, ...] | None, *, cwd: str | None = "/p", rules: tuple[Rule, ...] = ()
) -> Verdict:
    ref = ToolRef("claude_code", name)
    tool = Tool(ref, "", {}, "builtin", marks=Marks(read_only=name in ("Read", "Glob", "Grep", "WebSearch")))
    asker = Principal("session", "x", "cli", mode, session="s", cwd=cwd)
    return decide(ref, tool, asker, Grants(), Rules(1, rules), {}, paths).verdict


@pytest.mark.parametrize(
    ("mode", "name", "inside", "outside"),
    [
        ("default", "Read", "allow", "ask"),
        ("default", "Glob", "allow", "ask"),
        ("default", "Grep", "allow", "ask"),
        ("default", "Edit", "ask", "ask"),
        ("default", "Bash", "ask", "ask"),
        ("default", "WebSearch", "ask", "ask"),
        ("acceptEdits", "Read", "allow", "ask"),
        ("acceptEdits", "Edit", "allow", "ask"),
        ("acceptEdits", "Write", "allow", "ask"),
        ("acceptEdits", "NotebookEdit", "allow", "ask"),
        ("acceptEdits", "Bash", "ask", "ask"),
        ("plan", "Read", "allow", "ask"),
        ("plan", "WebSearch", "allow", "allow"),
        ("plan", "Edit", "deny", "deny"),
        ("plan", "Bash", "deny", "deny"),
        ("dontAsk", "Read", "deny", "deny"),
        ("bypassPermissions", "Bash", "allow", "allow"),
    ],
)
def test_what_a_mode_says(mode: Mode, name: str, inside: Verdict, outside: Verdict) -> None:
    assert verdict(name, mode, INSIDE) == inside
    assert verdict(name, mode, OUTSIDE) == outside


@pytest.mark.parametrize(
    ("name", "mode", "needed"),
    [
        ("Read", "default", True),
        ("Read", "plan", True),
        ("Edit", "acceptEdits", True),
        ("Edit", "default", False),
        ("Bash", "acceptEdits", False),
        ("Read", "dontAsk", False),
        ("Read", "bypassPermissions", False),
    ],
)
def test_a_decision_says_whether_it_needs_the_paths_of_the_call(name: str, mode: Mode, needed: bool) -> None:
    ref = ToolRef("claude_code", name)
    asker = Principal("session", "x", "cli", mode, cwd="/p")
    assert decide(ref, Tool(ref, "", {}), asker, Grants(), Rules()).needs_arguments is needed


def test_paths_that_are_not_known_are_outside() -> None:
    assert verdict("Read", "default", None) == "ask"
    assert verdict("Read", "default", ()) == "ask"
    assert verdict("Read", "default", INSIDE, cwd=None) == "ask"


def test_rules_come_before_the_mode() -> None:
    assert verdict("Bash", "default", None, rules=(Rule("r", "allow", "claude_code/Bash", Origin("user")),)) == "allow"
    assert verdict("Read", "default", INSIDE, rules=(Rule("r", "ask", "claude_code/*", Origin("user")),)) == "ask"


@pytest.mark.parametrize(
    ("path", "directory", "inside"),
    [
        ("/p", "/p", True),
        ("/p/a", "/p", True),
        ("/p/a", "/p/", True),
        ("/p/../etc", "/p", False),
        ("/pp/a", "/p", False),
        ("/", "/p", False),
        ("p/a", "/p", False),
        ("/p/a", "p", False),
        ("/p/a", "/", False),
        ("", "/p", False),
        ("/p/a", "", False),
    ],
)
def test_what_lies_inside(path: str, directory: str, inside: bool) -> None:
    assert is_inside(path, directory) is inside


@pytest.mark.parametrize(
    ("name", "arguments", "paths"),
    [
        ("Read", {"file_path": "/etc/x"}, ("/etc/x",)),
        ("Read", {"file_path": "a/b"}, ("/p/a/b",)),
        ("Read", {"file_path": "../x"}, ("/p/../x",)),
        ("Read", {"file_path": "~/x"}, ("/",)),
        ("Read", {"file_path": 3}, ("/",)),
        ("Read", {}, ("/",)),
        ("Edit", {"file_path": "a\0b"}, ("/",)),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, ("/p/n.ipynb",)),
        ("Grep", {"pattern": "/etc/*"}, ("/p",)),
        ("Grep", {"path": "/q"}, ("/q",)),
        ("Glob", {"pattern": "**/*.py"}, ("/p", "/p")),
        ("Glob", {"pattern": "src/*.py", "path": "/q"}, ("/q", "/q/src")),
        ("Glob", {"pattern": "/etc/*"}, ("/p", "/etc")),
        ("Glob", {"pattern": "/*"}, ("/p", "/")),
        ("Glob", {"pattern": "../*"}, ("/p", "/p/..")),
        ("Glob", {"pattern": "*/../../*"}, ("/p", "/")),
        ("Glob", {"pattern": "{a,../..}/x"}, ("/p", "/")),
        ("Glob", {}, ("/p", "/")),
        ("Bash", {"command": "cat /etc/x"}, ()),
    ],
)
def test_the_paths_a_call_names(name: str, arguments: JsonObject, paths: tuple[str, ...]) -> None:
    assert named_paths(name, arguments, "/p") == paths
