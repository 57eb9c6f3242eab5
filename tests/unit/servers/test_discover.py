"""Discovery of servers: shadowing, identity, switches and aliases."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.files.reading import FileText
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec
from toolcrib.servers.discover import discover, merge
from toolcrib.servers.identity import is_safe_name, normal_url
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import ConfigFile, FileReading, read_content


class Machine:
    """A user's home with a crib, a repository and configuration files."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.crib = self.home / ".crib"
        self.repository = root / "repository"
        self.cwd = self.repository / "packages" / "app"
        for directory in (self.crib, self.repository / ".git", self.cwd):
            directory.mkdir(parents=True)

    def write(self, path: Path, content: Any) -> None:
        """Write a file, as JSON unless the content is text."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")

    def discover(self, environment: dict[str, str] | None = None, trust: bool = False) -> Discovery:
        """Return the discovery from the working directory."""
        return discover(
            environment or {}, self.cwd, home=self.home, crib=self.crib, trusted=lambda _: trust, platform="linux"
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return an empty machine."""
    return Machine(tmp_path)


def servers(**entries: Any) -> dict[str, Any]:
    """Return a file in the common format."""
    return {"mcpServers": entries}


def entries_named(discovery: Discovery, name: str) -> list[ServerEntry]:
    """Return all entries with a name, the active one first."""
    return sorted(
        (entry for entry in discovery.servers if entry.name == name), key=lambda entry: entry.state == "shadowed"
    )


def test_files_of_all_levels_are_found_from_a_subdirectory(machine: Machine) -> None:
    """From the working directory up to the repository's root, and the user's files."""
    machine.write(machine.crib / "mcp.json", servers(own={"type": "stdio", "command": "own"}))
    machine.write(machine.home / ".cursor/mcp.json", servers(cursor={"command": "c"}))
    machine.write(machine.home / ".codex/config.toml", '[mcp_servers.codex]\ncommand = "x"\n')
    machine.write(machine.home / ".config/goose/config.yaml", "extensions:\n  goose:\n    type: stdio\n    cmd: g\n")
    machine.write(machine.repository / ".mcp.json", servers(root={"command": "r"}))
    machine.write(machine.cwd / ".vscode/mcp.json", {"servers": {"near": {"command": "n"}}})
    machine.write(machine.repository.parent / ".mcp.json", servers(outside={"command": "o"}))
    discovery = machine.discover()
    assert [entry.name for entry in discovery.servers] == ["codex", "cursor", "goose", "near", "own", "root"]
    sources = {entry.name: entry.source.to_json() for entry in discovery.servers}
    assert sources["codex"] == {
        "client": "codex",
        "scope": "user",
        "file": str(machine.home / ".codex/config.toml"),
        "line": 1,
    }
    assert sources["near"]["scope"] == "project"
    assert discovery.project == str(machine.repository.resolve())


def test_outside_a_repository_only_the_working_directory_counts(machine: Machine) -> None:
    """A directory above may belong to another user."""
    machine.write(machine.repository / ".mcp.json", servers(root={"command": "r"}))
    (machine.repository / ".git").rmdir()
    assert machine.discover().servers == ()


def test_nearest_directory_wins_and_the_others_stay_visible(machine: Machine) -> None:
    """Precedence: managed, near, far, user."""
    machine.write(machine.home / ".cursor/mcp.json", servers(s={"command": "user"}))
    machine.write(machine.repository / ".mcp.json", servers(s={"command": "root"}))
    machine.write(machine.cwd / ".cursor/mcp.json", servers(s={"command": "near"}))
    entries = entries_named(machine.discover(), "s")
    assert [(entry.definition["command"], entry.state) for entry in entries] == [
        ("near", "untrusted"),
        ("root", "shadowed"),
        ("user", "shadowed"),
    ]
    assert {entry.shadowed_by for entry in entries[1:]} == {"s"}
    assert len({entry.alias for entry in entries}) == 3


def test_invalid_nearer_entry_does_not_hide_a_valid_one(machine: Machine) -> None:
    """Entries are judged before they are merged."""
    machine.write(machine.home / ".cursor/mcp.json", servers(s={"command": "user"}))
    machine.write(machine.cwd / ".mcp.json", servers(s={"command": "x", "url": "https://x"}))
    states = {
        entry.definition["command"]: (entry.state, entry.alias) for entry in entries_named(machine.discover(), "s")
    }
    assert states["user"] == ("untrusted", "s")
    assert states["x"][0] == "invalid"


def test_own_file_precedes_claudes_local_and_project_files(machine: Machine) -> None:
    """The order of the table."""
    machine.write(machine.cwd / ".cursor/mcp.json", servers(s={"command": "cursor"}))
    machine.write(machine.cwd / ".mcp.json", servers(s={"command": "project"}))
    local = {"projects": {str(machine.cwd): servers(s={"command": "local"})}}
    machine.write(machine.home / ".claude.json", local)
    assert entries_named(machine.discover(), "s")[0].source.scope == "local"
    machine.write(machine.cwd / ".toolcrib/mcp.json", servers(s={"command": "own"}))
    winner = entries_named(machine.discover(), "s")[0]
    assert (winner.source.client, winner.source.scope) == ("toolcrib", "project")


def test_disabled_entry_still_shadows_the_one_below_it(machine: Machine) -> None:
    """Disabling one entry must not enable another."""
    machine.write(machine.home / ".kiro/settings/mcp.json", servers(s={"command": "user"}))
    machine.write(machine.cwd / ".kiro/settings/mcp.json", servers(s={"command": "near", "disabled": True}))
    assert [entry.state for entry in entries_named(machine.discover(), "s")] == ["disabled", "shadowed"]


def test_same_server_under_several_names_is_one_row_with_all_places(machine: Machine) -> None:
    """For any notation of variables, URLs and `-y`."""
    machine.write(
        machine.home / ".cursor/mcp.json",
        servers(gh={"command": "npx", "args": ["-y", "p"], "env": {"T": "${env:TOKEN}"}}),
    )
    machine.write(
        machine.home / ".factory/mcp.json", servers(github={"command": "npx", "args": ["p"], "env": {"T": "${TOKEN}"}})
    )
    machine.write(machine.home / ".kiro/settings/mcp.json", servers(web={"url": "HTTPS://Mcp.Example.com:443/mcp/"}))
    machine.write(machine.home / ".lmstudio/mcp.json", servers(web={"url": "https://mcp.example.com/mcp"}))
    discovery = machine.discover()
    rows = {entry.name: entry for entry in discovery.servers}
    assert set(rows) == {"gh", "web"}
    assert rows["gh"].same_as == ("github",)
    assert [source.client for source in rows["web"].sources] == ["kiro", "lm-studio"]


def test_same_program_with_two_accounts_is_two_servers(machine: Machine) -> None:
    """Values are part of the identity of a server."""
    machine.write(
        machine.home / ".cursor/mcp.json",
        servers(a={"command": "x", "env": {"T": "1"}}, b={"command": "x", "env": {"T": "2"}}),
    )
    assert len(machine.discover().servers) == 2


def test_settings_of_clients_disable_their_servers_and_never_enable_them(machine: Machine) -> None:
    """The lists of Claude, Gemini and oh-my-pi; a project cannot approve itself."""
    machine.write(machine.cwd / ".mcp.json", servers(a={"command": "a"}, b={"command": "b"}))
    machine.write(
        machine.home / ".claude/settings.json",
        {"disabledMcpjsonServers": ["a"], "deniedMcpServers": [{"serverCommand": ["d", "1"]}]},
    )
    machine.write(machine.home / ".claude.json", servers(d={"command": "d", "args": ["1"]}))
    machine.write(machine.cwd / ".claude/settings.json", {"enableAllProjectMcpServers": True})
    machine.write(machine.home / ".gemini/settings.json", {**servers(g={"command": "g"}), "mcp": {"excluded": ["g"]}})
    machine.write(machine.home / ".omp/agent/mcp.json", {**servers(o={"command": "o"}), "disabledServers": ["o"]})
    states = {entry.name: entry.state for entry in machine.discover().servers}
    assert states == {"a": "disabled", "b": "untrusted", "d": "disabled", "g": "disabled", "o": "disabled"}


def test_project_disables_a_users_server_where_the_client_merges_files(machine: Machine) -> None:
    """As opencode and Codex do."""
    machine.write(machine.home / ".config/opencode/opencode.json", {"mcp": {"s": {"type": "local", "command": ["x"]}}})
    machine.write(machine.cwd / "opencode.json", {"mcp": {"s": {"enabled": False}}})
    entries = entries_named(machine.discover(), "s")
    assert [entry.state for entry in entries] == ["disabled", "shadowed"]


def test_overlay_disables_or_hides_a_server_of_another_file(machine: Machine) -> None:
    """The overlay disables or hides a server without changing the other file."""
    file = machine.home / ".cursor/mcp.json"
    machine.write(file, servers(a={"command": "a"}, b={"command": "b"}))
    machine.write(
        machine.crib / "mcp.json",
        {"mcpServers": {}, "overlays": {f"{file}#a": {"enabled": False}, f"{file}#b": {"hidden": True}}},
    )
    discovery = machine.discover()
    assert [(entry.name, entry.state) for entry in discovery.servers] == [("a", "disabled")]
    assert [entry.name for entry in discovery.hidden] == ["b"]


def test_names_are_kept_and_each_server_gets_a_unique_safe_alias(machine: Machine) -> None:
    """Unusual characters, names that become equal, names of built-in servers, long names."""
    names = ["a b", "a_b", "a/b", "toolcrib", "ü", "", "x" * 300, "GitHub (work)", "..", "名前"]
    machine.write(
        machine.home / ".cursor/mcp.json",
        {"mcpServers": {name: {"command": f"c{index}"} for index, name in enumerate(names)}},
    )
    discovery = machine.discover()
    assert {entry.name for entry in discovery.servers} == set(names)
    assert all(is_safe_name(entry.alias) and entry.alias != "toolcrib" for entry in discovery.servers)
    assert len({entry.alias for entry in discovery.servers}) == len(names)
    assert {entry.name: entry.alias for entry in discovery.servers}["a_b"] == "a_b"


def test_missing_variable_is_named_and_a_secret_is_never_shown(machine: Machine) -> None:
    """Listing checks whether a variable exists, and reads no value."""
    secret = "sk-live-" + "a1b2" * 8
    machine.write(
        machine.cwd / ".mcp.json",
        servers(s={"command": "x", "env": {"API": "${WANTED}", "OTHER": "${THERE}", "KEY": secret}}),
    )
    entry = entries_named(machine.discover({"THERE": "the-value-of-there"}), "s")[0]
    assert [problem.code for problem in entry.problems] == ["server.variable_missing"]
    assert "WANTED" in entry.problems[0].message
    shown = json.dumps(entry.to_json())
    assert secret not in shown
    assert "the-value-of-there" not in shown
    assert entry.definition["env"]["API"] == "${WANTED}"


def test_crib_does_not_connect_to_itself(machine: Machine) -> None:
    """`toolcrib connect` wrote the entry."""
    machine.write(
        machine.home / ".cursor/mcp.json", servers(toolcrib={"command": "uvx", "args": ["toolcrib", "stdio"]})
    )
    entry = machine.discover(trust=True).servers[0]
    assert (entry.state, [problem.code for problem in entry.problems]) == ("disabled", ["server.own_crib"])


def test_trust_in_a_definition_is_not_revoked_by_a_project_that_repeats_it(machine: Machine) -> None:
    """The accepted definition is the one that starts."""
    machine.write(machine.home / ".cursor/mcp.json", servers(s={"command": "npx", "args": ["p"]}))
    machine.write(machine.cwd / ".mcp.json", servers(s={"command": "npx", "args": ["p"]}))
    entry = discover(
        {}, machine.cwd, home=machine.home, crib=machine.crib, trusted=lambda spec: spec.source.scope == "user"
    ).servers[0]
    assert (entry.state, entry.source.scope, len(entry.sources)) == ("not_checked", "user", 2)


def test_unusable_file_is_a_problem_and_the_others_are_read(machine: Machine, tmp_path: Path) -> None:
    """Pipes, directories, loops, links out of the project, large files, other encodings."""
    import os

    machine.write(machine.home / ".cursor/mcp.json", servers(ok={"command": "x"}))
    os.mkfifo(machine.cwd / ".mcp.json")
    (machine.cwd / ".vscode" / "mcp.json").mkdir(parents=True)
    (machine.cwd / "mcp.json").symlink_to(machine.cwd / "mcp.json")
    machine.write(tmp_path / "secret.json", servers(stolen={"command": "x"}))
    (machine.cwd / ".roo").mkdir()
    (machine.cwd / ".roo" / "mcp.json").symlink_to(tmp_path / "secret.json")
    machine.write(tmp_path / "elsewhere" / "mcp.json", servers(stolen={"command": "x"}))
    (machine.cwd / ".cursor").symlink_to(tmp_path / "elsewhere")
    machine.write(machine.cwd / ".trae/mcp.json", servers(u={"command": "x"}))
    (machine.cwd / ".trae/mcp.json").write_bytes('{"mcpServers": {}}'.encode("utf-16"))
    machine.write(machine.cwd / ".factory/mcp.json", "x")
    with (machine.cwd / ".factory/mcp.json").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    machine.write(machine.cwd / "crushrc", "touch pwned")
    discovery = machine.discover()
    assert [entry.name for entry in discovery.servers] == ["ok"]
    codes = sorted(problem.code for problem in discovery.problems)
    assert codes == sorted(
        [
            "config.not_a_file",
            "config.not_a_file",
            "config.unreadable",
            "config.link",
            "config.link",
            "config.encoding",
            "config.too_large",
            "config.layout",
        ]
    )
    assert all(problem.file for problem in discovery.problems)


NAMES = st.sampled_from(["a", "b", "a b", "toolcrib", "A", "a_b"])
ENTRIES = st.dictionaries(
    NAMES,
    st.sampled_from(
        [
            {"command": "x"},
            {"command": "y", "enabled": False},
            {"url": "https://h/p"},
            {"url": "https://H/p/", "type": "http"},
            {"command": "x", "url": "https://h"},
            {"enabled": False},
            None,
        ]
    ),
    max_size=4,
)
PLACES = (
    ConfigFile("toolcrib", "user", Path("/h/.crib/mcp.json"), 0),
    ConfigFile("claude-code", "project", Path("/r/a/.mcp.json"), 3, Path("/r/a"), Path("/r")),
    ConfigFile("claude-code", "project", Path("/r/.mcp.json"), 3, Path("/r"), Path("/r")),
    ConfigFile("cursor", "user", Path("/h/.cursor/mcp.json"), 5),
    ConfigFile("kiro", "managed", Path("/etc/kiro.json"), 9),
    ConfigFile("crush", "user", Path("/h/crush.json"), 11),
)


def _read(place: ConfigFile, entries: dict[str, Any]) -> FileReading:
    root = ".".join(place.dialect.roots[0])
    return read_content(place, FileText(json.dumps({root: entries}), False, ""), ReadingContext(place.file))


def _trust_nothing(spec: ServerSpec) -> bool:
    return False


@settings(deadline=None)
@given(st.tuples(*[ENTRIES] * len(PLACES)), st.randoms(use_true_random=False))
def test_result_does_not_depend_on_the_order_of_files(files: tuple[dict[str, Any], ...], random: Any) -> None:
    """Each entry is in the list as a row, as a place of a row, or as hidden."""
    readings = [_read(place, entries) for place, entries in zip(PLACES, files, strict=True)]
    straight = merge(readings, {}, _trust_nothing)
    shuffled = list(readings)
    random.shuffle(shuffled)
    assert merge(shuffled, {}, _trust_nothing) == straight
    places = [(source.file, source.line) for entry in straight.servers for source in entry.sources]
    assert sorted(places) == sorted((e.source.file, e.source.line) for reading in readings for e in reading.entries)
    in_force = [entry.name for entry in straight.servers if entry.spec and entry.shadowed_by is None]
    assert len(in_force) == len(set(in_force))
    assert len({entry.alias for entry in straight.servers}) == len(straight.servers)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP://X.com/", "http://x.com"),
        ("https://x.com:443/a/", "https://x.com/a"),
        ("https://[::1]:8/a#f", "https://[::1]:8/a"),
    ],
)
def test_equivalent_urls_are_equal(one: str, other: str) -> None:
    """Case, default port, trailing slash, fragment."""
    assert normal_url(one) == normal_url(other)


@pytest.mark.parametrize(
    ("file", "key", "argument", "count"),
    [
        (".vscode/mcp.json", "servers", "${workspaceFolder}/serve.py", 2),
        (".vscode/mcp.json", "servers", "/opt/serve.py", 1),
        (".cursor/mcp.json", "mcpServers", "${workspaceFolder}/serve.py", 2),
    ],
)
def test_identity_includes_the_directory_of_a_placeholder(
    machine: Machine, file: str, key: str, argument: str, count: int
) -> None:
    """One name in the package, another in the repository above it."""
    for name, directory in (("near", machine.cwd), ("far", machine.repository)):
        machine.write(directory / file, {key: {name: {"command": "python", "args": [argument]}}})
    assert len(machine.discover().servers) == count
