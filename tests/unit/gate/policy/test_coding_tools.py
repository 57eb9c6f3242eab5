"""The coding agent's own tools: the paths that their calls touch, and the verdict of each mode."""

from typing import get_args

import pytest

from toolcrib.gate.policy.coding_tools import named_paths
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import NamedPath, TouchedPath, is_inside
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Rule, RuleOrigin, Verdict
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Marks, Tool, ToolRef

INSIDE, OUTSIDE = (TouchedPath("/p/a.py"),), (TouchedPath("/p/a.py"), TouchedPath("/etc/passwd"))
DECISIVE = (TouchedPath("/p/.git/config"),)
HOME = (TouchedPath("/p/home/token", "inside"),)
AROUND = (TouchedPath("/p", "around"),)
INDIRECT = (TouchedPath("/proc/1/cwd", "indirect"),)
UNNAMED = (TouchedPath(None),)
MODES: tuple[Mode, ...] = get_args(Mode)
FILE_TOOLS = ("Read", "Glob", "Grep", "LS", "Edit", "MultiEdit", "Write", "NotebookEdit", "Bash")
ALLOW = Rule("r", "allow", "claude_code/*", RuleOrigin("user"))


def verdict(
    name: str,
    mode: Mode,
    paths: tuple[TouchedPath, ...] | None,
    *,
    cwd: str | None = "/p",
    rules: tuple[Rule, ...] = (),
) -> Verdict:
    ref = ToolRef("claude_code", name)
    is_web = name in ("WebFetch", "WebSearch")
    marks = Marks(read_only=is_web or name in ("Read", "Glob", "Grep"), open_world=is_web)
    tool = Tool(ref, "", {}, "builtin", marks=marks)
    principal = Principal("session", "x", "cli", mode, session="s", cwd=cwd)
    return decide(ref, tool, principal, Grants(), Rules(1, rules), {}, paths).verdict


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
        ("plan", "WebSearch", "ask", "ask"),
        ("plan", "WebFetch", "ask", "ask"),
        ("plan", "Edit", "deny", "deny"),
        ("plan", "Bash", "deny", "deny"),
        ("dontAsk", "Read", "deny", "deny"),
        ("bypassPermissions", "Bash", "allow", "allow"),
    ],
)
def test_verdict_depends_on_mode_tool_and_paths(mode: Mode, name: str, inside: Verdict, outside: Verdict) -> None:
    assert verdict(name, mode, INSIDE) == inside
    assert verdict(name, mode, OUTSIDE) == outside


@pytest.mark.parametrize(
    ("name", "mode", "needed"),
    [
        ("Read", "default", True),
        ("Read", "plan", True),
        ("Edit", "acceptEdits", True),
        ("Edit", "default", True),
        ("Bash", "acceptEdits", True),
        ("Read", "dontAsk", True),
        ("Read", "bypassPermissions", True),
        ("Task", "default", False),
    ],
)
def test_decision_states_whether_it_needs_the_paths_of_the_call(name: str, mode: Mode, needed: bool) -> None:
    ref = ToolRef("claude_code", name)
    principal = Principal("session", "x", "cli", mode, cwd="/p")
    assert decide(ref, Tool(ref, "", {}), principal, Grants(), Rules()).needs_arguments is needed


def test_unknown_paths_count_as_outside() -> None:
    assert verdict("Read", "default", None) == "ask"
    assert verdict("Read", "default", ()) == "ask"
    assert verdict("Read", "default", INSIDE, cwd=None) == "ask"


def test_rules_take_precedence_over_the_mode() -> None:
    assert (
        verdict("Bash", "default", None, rules=(Rule("r", "allow", "claude_code/Bash", RuleOrigin("user")),)) == "allow"
    )
    assert verdict("Read", "default", INSIDE, rules=(Rule("r", "ask", "claude_code/*", RuleOrigin("user")),)) == "ask"


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
def test_is_inside_compares_normalised_absolute_paths(path: str, directory: str, inside: bool) -> None:
    assert is_inside(path, directory) is inside


@pytest.mark.parametrize("touched", [HOME, AROUND, INDIRECT])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILE_TOOLS)
def test_home_is_closed_in_every_mode_despite_allow_rules(
    name: str, mode: Mode, touched: tuple[TouchedPath, ...]
) -> None:
    assert verdict(name, mode, touched) == "deny"
    assert verdict(name, mode, (*INSIDE, *touched), rules=(ALLOW,)) == "deny"


@pytest.mark.parametrize("name", ["Edit", "MultiEdit", "Write", "NotebookEdit"])
def test_edit_of_a_decisive_file_asks_in_accept_edits(name: str) -> None:
    assert verdict(name, "acceptEdits", INSIDE) == "allow"
    assert verdict(name, "acceptEdits", DECISIVE) == "ask"
    assert verdict(name, "acceptEdits", (TouchedPath("/p/a.py", is_linked=True),)) == "ask"
    assert verdict("Read", "acceptEdits", DECISIVE) == "allow"


def test_remembered_answer_does_not_count_for_edits_of_decisive_files() -> None:
    remembered = Rule("r", "allow", "claude_code/*", RuleOrigin("remembered"))
    assert verdict("Edit", "default", INSIDE, rules=(remembered,)) == "allow"
    assert verdict("Edit", "default", DECISIVE, rules=(remembered,)) == "ask"
    assert verdict("Edit", "default", DECISIVE, rules=(remembered, ALLOW)) == "allow"
    assert verdict("Edit", "dontAsk", DECISIVE, rules=(remembered,)) == "deny"


def test_worktree_in_the_home_is_open_only_to_its_own_project() -> None:
    touched = (TouchedPath("/h/work/1/a.py", "inside", "/h/work/1"),)
    assert verdict("Edit", "acceptEdits", touched, cwd="/h/work/1") == "allow"
    assert verdict("Edit", "acceptEdits", touched, cwd="/h/work/1/src") == "ask"
    assert verdict("Edit", "acceptEdits", touched, cwd="/h/work/2") == "deny"
    assert verdict("Edit", "acceptEdits", touched, cwd="/h") == "deny"


def test_file_tool_without_a_path_asks_even_in_bypass() -> None:
    assert verdict("Read", "bypassPermissions", UNNAMED) == "ask"
    assert verdict("Edit", "acceptEdits", UNNAMED) == "ask"


def paths(*given: str | None, tree: bool = False) -> tuple[NamedPath, ...]:
    return tuple(NamedPath(path, tree) for path in given)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Read", {"file_path": "/etc/x"}, paths("/etc/x", tree=True)),
        ("Read", {"file_path": "a/b"}, paths("/p/a/b", tree=True)),
        ("Read", {"file_path": "../x"}, paths("/p/../x", tree=True)),
        ("Read", {"file_path": "~/x"}, paths("/p/~/x", "/u/x", tree=True)),
        ("Read", {"file_path": " /u/x\n"}, paths("/p/ /u/x\n", "/u/x", tree=True)),
        ("Read", {"file_path": "file:///u/%78"}, paths("/p/file:/u/%78", "/u/x", tree=True)),
        ("Read", {"file_path": 3}, paths(None)),
        ("Read", {}, paths(None)),
        ("Read", {"file_path": "", "paths": ["a", "/b"]}, paths("/p/a", "/b", tree=True)),
        ("Edit", {"file_path": "a\0b"}, paths(None)),
        ("MultiEdit", {"file_path": "a"}, paths("/p/a")),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, paths("/p/n.ipynb")),
        ("LS", {"path": "/q"}, paths("/q", tree=True)),
        ("Grep", {"pattern": "/etc/*"}, paths("/p", tree=True)),
        ("Grep", {"path": "/q"}, paths("/q", tree=True)),
        ("Grep", {"path": ""}, paths(None)),
        ("Glob", {"pattern": "**/*.py"}, (NamedPath("/p"), NamedPath("/p", True))),
        ("Glob", {"pattern": "src/*.py", "path": "/q"}, (NamedPath("/q"), NamedPath("/q/src", True))),
        ("Glob", {"pattern": "token"}, (NamedPath("/p"), NamedPath("/p", True))),
        ("Glob", {"pattern": "!src/x"}, (NamedPath("/p"), NamedPath("/p", True))),
        ("Glob", {"pattern": "/etc/*"}, (NamedPath("/p"), NamedPath("/etc", True))),
        ("Glob", {"pattern": "/*"}, (NamedPath("/p"), NamedPath("/", True))),
        ("Glob", {"pattern": "../*"}, (NamedPath("/p"), NamedPath("/p/..", True))),
        ("Glob", {"pattern": "~/*"}, (NamedPath("/p"), NamedPath("/p/~", True), NamedPath("/u", True))),
        ("Glob", {"pattern": "*/../../*"}, (NamedPath("/p"), NamedPath("/", True))),
        ("Glob", {"pattern": "{a,../..}/x"}, (NamedPath("/p"), NamedPath("/", True))),
        ("Glob", {}, (NamedPath("/p"), NamedPath("/", True))),
        ("Bash", {"command": "cat /etc/x '$HOME/y' | wc"}, paths("/etc/x", "/u/y")),
        ("WebFetch", {"url": "https://a.example/u"}, ()),
        ("WebFetch", {"url": "file:///u/x"}, paths("/p/file:/u/x", "/u/x", tree=True)),
    ],
)
def test_paths_of_a_call_are_found_in_its_arguments(
    name: str, arguments: JsonObject, expected: tuple[NamedPath, ...]
) -> None:
    assert named_paths(name, arguments, "/p", "/u") == expected
