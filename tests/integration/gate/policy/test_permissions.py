"""Effective permissions on both databases: rules of files and the database, bundles, projects and grants."""

import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from lab import eventually
from toolcrib.gate.policy import permissions as module
from toolcrib.gate.policy.bundles import Bundles, Projects
from toolcrib.gate.policy.decide import decide
from toolcrib.gate.policy.fields import FaultyRequest
from toolcrib.gate.policy.patterns import Names
from toolcrib.gate.policy.permissions import Permissions, RuleBook
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.policy import AgentGrants, Bundle, Rule, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.model.projects import Project
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.store.engine import Store, open_store

pytestmark = pytest.mark.anyio

SEARCH = ToolRef("github", "search")
DENY = '[[rules]]\neffect = "deny"\npattern = "github/*"\n'
LIMIT = "[[limits]]\ncalls = 0\n"
ASK = '[[rules]]\neffect = "ask"\npattern = "github/*"\n'


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Store]:
    async with open_store(database) as opened:
        yield opened


@dataclass
class PermissionsSetup:
    """Permissions with both files, the known names and the agents."""

    store: Store
    folder: Path
    names: Names = field(default_factory=Names)
    agents: dict[str, AgentGrants] = field(default_factory=dict[str, AgentGrants])
    changes: int = 0
    book: RuleBook = field(default_factory=RuleBook)

    @property
    def managed(self) -> Path:
        return self.folder / "managed.toml"

    @property
    def settings_file(self) -> Path:
        return self.folder / "toolcrib.toml"

    async def open(self) -> Permissions:
        book = self.book = RuleBook(on_change=self._count)
        bundles = Bundles(self.store, lambda: self.names, book.renew)
        opened = Permissions(
            self.store,
            book=book,
            bundles=bundles,
            projects=Projects(self.store, bundles, lambda path: path.endswith("trusted"), book.renew),
            managed=self.managed,
            settings_file=self.settings_file,
            last_rules=self.folder / "last-rules",
            names=lambda: self.names,
            of_agent=self.agents.get,
        )
        await opened.load()
        return opened

    def _count(self) -> None:
        self.changes += 1


@pytest.fixture
def setup(store: Store, tmp_path: Path) -> PermissionsSetup:
    return PermissionsSetup(store, Path(os.path.realpath(tmp_path)))


def verdict(permissions: Permissions, *, agent: str | None = None, cwd: str | None = None) -> str:
    """Return the verdict on a call of the search by an IDE."""
    principal = Principal("token", "ide", "ide", "acceptEdits", agent, cwd=cwd)
    tool = Tool(SEARCH, "Searches.", {})
    return decide(SEARCH, tool, principal, permissions.grants(principal), permissions.rules()).verdict


def is_limited(permissions: Permissions) -> bool:
    """Return whether a limit refuses the call."""
    return permissions.limits.check(Principal("token", "ide", "ide"), SEARCH) is not None


async def test_rules_of_both_files_and_the_database_apply_with_their_origins(setup: PermissionsSetup) -> None:
    setup.managed.write_text("\n" + DENY, encoding="utf-8")
    setup.settings_file.write_text('port = 1\n\n[[rules]]\neffect = "allow"\npattern = "github/*"\n', encoding="utf-8")
    permissions = await setup.open()
    added = await permissions.add({"effect": "ask", "pattern": "x/*", "reason": "Careful."}, by="owner")
    origins = [(rule.origin.kind, rule.origin.file, rule.origin.line) for rule in permissions.list()]
    assert origins == [("managed", str(setup.managed), 2), ("user", str(setup.settings_file), 3), ("user", None, None)]
    assert verdict(permissions) == "hidden"
    again = await setup.open()
    assert again.get(added.id) == added
    assert all(rule.created_at is not None for rule in again.list())


async def test_rule_of_a_file_can_only_be_changed_in_the_file(setup: PermissionsSetup) -> None:
    setup.settings_file.write_text(DENY, encoding="utf-8")
    permissions = await setup.open()
    (rule,) = permissions.list()
    for attempt in (permissions.remove(rule.id), permissions.change(rule.id, {"reason": "x"})):
        with pytest.raises(Conflict, match=r"toolcrib\.toml, line 1") as refused:
            await attempt
        assert refused.value.code == "rule.in_file"
    with pytest.raises(NotFound):
        await permissions.remove("unknown")


async def test_rule_is_changed_by_field_and_removed(setup: PermissionsSetup) -> None:
    permissions = await setup.open()
    rule = await permissions.add({"effect": "deny", "pattern": "github/*", "reason": "Old."}, by="anna")
    version = permissions.rules().version
    changed = await permissions.change(rule.id, {"effect": "ask", "reason": None})
    assert (changed.effect, changed.reason, changed.created_by) == ("ask", None, "anna")
    assert verdict(permissions) == "ask"
    assert permissions.rules().version > version
    assert (await setup.open()).list() == (changed,)
    await permissions.remove(rule.id)
    assert verdict(permissions) == "allow"
    assert (await setup.open()).list() == ()


async def test_every_fault_of_a_rule_is_reported_with_its_path(setup: PermissionsSetup) -> None:
    permissions = await setup.open()
    raw = {"effect": "maybe", "pattern": "nothing", "conditions": [{"pointer": "/a", "test": "regex", "value": "("}]}
    with pytest.raises(FaultyRequest) as refused:
        await permissions.add(raw, by="owner")
    assert [fault.path for fault in refused.value.faults] == ["effect", "pattern", "conditions/0/value"]
    assert refused.value.code == "rule.invalid"
    assert permissions.list() == ()


async def test_changed_file_is_read_again(setup: PermissionsSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    permissions = await setup.open()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(permissions.follow)
            setup.settings_file.write_text(DENY, encoding="utf-8")
            await eventually(lambda: verdict(permissions) == "hidden")
            setup.settings_file.unlink()
            await eventually(lambda: verdict(permissions) == "allow")
            tasks.cancel_scope.cancel()
    assert setup.changes == 2


async def test_broken_file_keeps_its_last_readable_content(setup: PermissionsSetup) -> None:
    setup.settings_file.write_text(DENY + "\n[[limits]]\ncalls = 0\n", encoding="utf-8")
    permissions = await setup.open()
    setup.settings_file.write_text(DENY + "\n[[rules", encoding="utf-8")
    await permissions.look()
    assert verdict(permissions) == "hidden"
    assert permissions.limits.check(Principal("token", "t", "ide"), SEARCH) is not None
    assert [problem.file for problem in permissions.problems] == [str(setup.settings_file)]
    setup.settings_file.write_text(ASK, encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), permissions.problems) == ("ask", ())


async def test_unreadable_managed_file_makes_every_call_ask(setup: PermissionsSetup) -> None:
    setup.managed.mkdir()
    permissions = await setup.open()
    assert verdict(permissions) == "ask"
    assert [problem.code for problem in permissions.problems] == ["config.not_a_file"]


async def test_broken_managed_file_keeps_its_rules_and_asks_for_other_calls(setup: PermissionsSetup) -> None:
    setup.managed.write_text('[[rules]]\neffect = "deny"\npattern = "mail/*"\n', encoding="utf-8")
    permissions = await setup.open()
    assert verdict(permissions) == "allow"
    for broken in ("[[rules", "[[rules]", "rules = 1"):
        setup.managed.write_text(broken, encoding="utf-8")
        await permissions.look()
    assert verdict(permissions) == "ask"
    setup.managed.write_text("[[rules", encoding="utf-8")
    await permissions.look()
    assert verdict(permissions) == "ask"


@pytest.mark.parametrize("broken", ["", "[[rules", "rules = 1", DENY + "port = ", b"\xff\xfe", None])
async def test_broken_file_keeps_its_last_readable_content_after_restarts(
    setup: PermissionsSetup, broken: str | bytes | None
) -> None:
    setup.settings_file.write_text(DENY + LIMIT, encoding="utf-8")
    (rule,) = (await setup.open()).list()
    if broken is None:
        setup.settings_file.unlink()
        setup.settings_file.mkdir()
    else:
        setup.settings_file.write_bytes(broken.encode() if isinstance(broken, str) else broken)
    for permissions in (await setup.open(), await setup.open()):
        assert [each.id for each in permissions.list()] == [rule.id]
        assert (verdict(permissions), is_limited(permissions)) == ("hidden", True)
        (problem,) = permissions.problems
        assert problem.file == str(setup.settings_file)
        assert "Its last readable content stays in force." in (problem.hint or "")
    if broken is None:
        setup.settings_file.rmdir()
    setup.settings_file.write_text(ASK, encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), is_limited(permissions), permissions.problems) == ("ask", False, ())
    assert ((setup.folder / "last-rules").stat().st_mode & 0o777) == 0o700
    assert ((setup.folder / "last-rules" / "toolcrib.toml").stat().st_mode & 0o777) == 0o600


async def test_file_that_was_never_readable_denies_every_tool(setup: PermissionsSetup) -> None:
    setup.settings_file.write_text('port = 4242\n[[rules]]\neffect = "deny\n', encoding="utf-8")
    permissions = await setup.open()
    await permissions.add({"effect": "allow", "pattern": "*"}, by="owner")
    for _ in range(2):
        assert verdict(permissions) == "hidden"
        (problem,) = permissions.problems
        assert (problem.file, problem.line) == (str(setup.settings_file), 3)
        assert "no tool may be used" in (problem.hint or "")
        stand_in = permissions.list()[0]
        assert (stand_in.effect, stand_in.pattern, stand_in.origin.line) == ("deny", "*", 3)
        assert "until it is fixed" in (stand_in.reason or "")
        await permissions.look()
    setup.settings_file.write_text("port = 4242\n", encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), permissions.problems) == ("allow", ())


async def test_removed_file_denies_nothing(setup: PermissionsSetup) -> None:
    setup.settings_file.write_text(DENY, encoding="utf-8")
    await setup.open()
    setup.settings_file.unlink()
    assert verdict(await setup.open()) == "allow"
    setup.settings_file.write_text("[[rules", encoding="utf-8")
    assert verdict(await setup.open()) == "hidden", "the content before the removal is no longer known"


async def test_broken_managed_file_keeps_its_rules_after_a_restart_and_asks(setup: PermissionsSetup) -> None:
    setup.managed.write_text(DENY, encoding="utf-8")
    await setup.open()
    setup.managed.write_text("[[rules", encoding="utf-8")
    permissions = await setup.open()
    assert [(each.effect, each.pattern) for each in permissions.list()] == [("deny", "github/*"), ("ask", "*")]


async def test_rule_for_a_tool_applies_once_its_name_appears(setup: PermissionsSetup) -> None:
    setup.settings_file.write_text('[[rules]]\neffect = "deny"\npattern = "mcp__github__search"\n', encoding="utf-8")
    permissions = await setup.open()
    assert (verdict(permissions), len(permissions.problems)) == ("allow", 1)
    setup.names = Names({"mcp__github__search": SEARCH})
    assert (verdict(permissions), permissions.problems) == ("hidden", ())
    assert permissions.named("mcp__github__search") == SEARCH


async def test_projects_of_rules_are_compared_by_real_path(setup: PermissionsSetup) -> None:
    (setup.folder / "real").mkdir()
    (setup.folder / "link").symlink_to(setup.folder / "real")
    permissions = await setup.open()
    where = {"projects": [str(setup.folder / "link")]}
    await permissions.add({"effect": "deny", "pattern": "github/*", "where": where}, by="owner")
    assert verdict(permissions, cwd=str(setup.folder / "real" / "below")) == "hidden"
    assert verdict(permissions, cwd=str(setup.folder)) == "allow"


async def test_remembered_answer_applies_like_any_rule(setup: PermissionsSetup) -> None:
    permissions = await setup.open()
    rule = Rule("answer-1", "deny", "github/search", RuleOrigin("remembered"))
    await permissions.remember(rule)
    assert verdict(permissions) == "hidden"
    assert (await setup.open()).list() == (rule,)


async def test_agent_has_its_permissions_skills_and_the_bundles_of_its_projects(setup: PermissionsSetup) -> None:
    setup.agents = {"none": AgentGrants(()), "skilled": AgentGrants((), ("mcp__github",)), "plain": AgentGrants()}
    setup.names = Names(servers={"mcp__github": "github"})
    permissions = await setup.open()
    agents = ("none", "skilled", "plain", "unknown")
    assert [verdict(permissions, agent=agent) for agent in agents] == ["hidden", "allow", "allow", "hidden"]
    await permissions.bundles.create(Bundle("finder", "Finder", ("mcp__github",)))
    outer, inner = setup.folder / "outer", setup.folder / "outer" / "inner"
    await permissions.projects.save(Project(str(outer), bundles=("finder",)))
    await permissions.projects.save(Project(str(inner), bundles=("reviewer",)))
    assert verdict(permissions, agent="none", cwd=str(inner)) == "allow"
    assert verdict(permissions, agent="none", cwd=str(setup.folder)) == "hidden"
    assert verdict(permissions, agent="unknown", cwd=str(inner)) == "hidden"


async def test_bundles_can_be_changed_and_removed_but_presets_cannot(setup: PermissionsSetup) -> None:
    permissions = await setup.open()
    made = await permissions.bundles.create(Bundle("mine", "Mine", ("github/*",)))
    await permissions.bundles.replace(Bundle("mine", "Mine", ("mail/*",)))
    await permissions.projects.save(Project(str(setup.folder), bundles=("mine", "reviewer")))
    again = await setup.open()
    assert again.bundles.get("mine").tools == ("mail/*",)
    assert [bundle.id for bundle in again.bundles.list()] == ["researcher", "reviewer", "operator", "mine"]
    with pytest.raises(Conflict, match="already"):
        await permissions.bundles.create(made)
    with pytest.raises(Conflict, match="already"):
        await permissions.bundles.create(Bundle("reviewer", "R", ("a/b",)))
    for attempt in (permissions.bundles.replace(Bundle("reviewer", "R", ())), permissions.remove_bundle("reviewer")):
        with pytest.raises(Conflict) as refused:
            await attempt
        assert refused.value.code == "bundle.preset"
    with pytest.raises(FaultyRequest):
        await permissions.bundles.create(Bundle("bad", "Bad", ("nothing",)))
    await permissions.remove_bundle("mine")
    assert (await permissions.projects.get(str(setup.folder))).bundles == ("reviewer",)
    with pytest.raises(NotFound):
        await permissions.remove_bundle("mine")


async def test_projects_are_stored_by_real_path_with_their_trust(setup: PermissionsSetup) -> None:
    (setup.folder / "trusted").mkdir()
    (setup.folder / "link").symlink_to(setup.folder / "trusted")
    permissions = await setup.open()
    saved = await permissions.projects.save(Project(str(setup.folder / "link"), agent="a"))
    assert saved == Project(str(setup.folder / "trusted"), trusted=True, agent="a")
    assert await (await setup.open()).projects.list() == (saved,)
    with pytest.raises(NotFound):
        await permissions.projects.save(Project(str(setup.folder), bundles=("no-such",)))
    await permissions.projects.remove(str(setup.folder / "link"))
    with pytest.raises(NotFound):
        await permissions.projects.get(str(setup.folder / "trusted"))


async def test_changed_agent_renews_the_rules_version(setup: PermissionsSetup) -> None:
    permissions = await setup.open()
    before = permissions.rules()
    setup.book.renew()
    assert permissions.rules().version > before.version
