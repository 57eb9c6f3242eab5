"""What is allowed now, on both databases: rules of files and of the database, bundles, projects and grants."""

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
class World:
    """Permissions with both their files, the names that are known, and the agents there are."""

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
    def own(self) -> Path:
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
            settings_file=self.own,
            last_rules=self.folder / "last-rules",
            names=lambda: self.names,
            of_agent=self.agents.get,
        )
        await opened.load()
        return opened

    def _count(self) -> None:
        self.changes += 1


@pytest.fixture
def world(store: Store, tmp_path: Path) -> World:
    return World(store, Path(os.path.realpath(tmp_path)))


def verdict(permissions: Permissions, *, agent: str | None = None, cwd: str | None = None) -> str:
    """What an IDE's call of the search comes to."""
    asker = Principal("token", "ide", "ide", "acceptEdits", agent, cwd=cwd)
    tool = Tool(SEARCH, "Searches.", {})
    return decide(SEARCH, tool, asker, permissions.grants(asker), permissions.rules()).verdict


def limited(permissions: Permissions) -> bool:
    """Whether a limit refuses it."""
    return permissions.limits.check(Principal("token", "ide", "ide"), SEARCH) is not None


async def test_rules_of_both_files_and_of_the_database_count_and_say_where_they_stand(world: World) -> None:
    world.managed.write_text("\n" + DENY, encoding="utf-8")
    world.own.write_text('port = 1\n\n[[rules]]\neffect = "allow"\npattern = "github/*"\n', encoding="utf-8")
    permissions = await world.open()
    added = await permissions.add({"effect": "ask", "pattern": "x/*", "reason": "Careful."}, by="owner")
    origins = [(rule.origin.kind, rule.origin.file, rule.origin.line) for rule in permissions.list()]
    assert origins == [("managed", str(world.managed), 2), ("user", str(world.own), 3), ("user", None, None)]
    assert verdict(permissions) == "hidden"
    again = await world.open()
    assert again.get(added.id) == added
    assert all(rule.created_at is not None for rule in again.list())


async def test_a_rule_of_a_file_is_changed_there_and_nowhere_else(world: World) -> None:
    world.own.write_text(DENY, encoding="utf-8")
    permissions = await world.open()
    (rule,) = permissions.list()
    for attempt in (permissions.remove(rule.id), permissions.change(rule.id, {"reason": "x"})):
        with pytest.raises(Conflict, match=r"toolcrib\.toml, line 1") as refused:
            await attempt
        assert refused.value.code == "rule.in_file"
    with pytest.raises(NotFound):
        await permissions.remove("nobody")


async def test_a_rule_is_changed_part_by_part_and_removed(world: World) -> None:
    permissions = await world.open()
    rule = await permissions.add({"effect": "deny", "pattern": "github/*", "reason": "Old."}, by="anna")
    version = permissions.rules().version
    changed = await permissions.change(rule.id, {"effect": "ask", "reason": None})
    assert (changed.effect, changed.reason, changed.created_by) == ("ask", None, "anna")
    assert verdict(permissions) == "ask"
    assert permissions.rules().version > version
    assert (await world.open()).list() == (changed,)
    await permissions.remove(rule.id)
    assert verdict(permissions) == "allow"
    assert (await world.open()).list() == ()


async def test_every_fault_of_a_rule_is_told_with_its_place(world: World) -> None:
    permissions = await world.open()
    raw = {"effect": "maybe", "pattern": "nothing", "conditions": [{"pointer": "/a", "test": "regex", "value": "("}]}
    with pytest.raises(FaultyRequest) as refused:
        await permissions.add(raw, by="owner")
    assert [fault.path for fault in refused.value.faults] == ["effect", "pattern", "conditions/0/value"]
    assert refused.value.code == "rule.invalid"
    assert permissions.list() == ()


async def test_a_changed_file_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    permissions = await world.open()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(permissions.follow)
            world.own.write_text(DENY, encoding="utf-8")
            await eventually(lambda: verdict(permissions) == "hidden")
            world.own.unlink()
            await eventually(lambda: verdict(permissions) == "allow")
            tasks.cancel_scope.cancel()
    assert world.changes == 2


async def test_a_file_that_breaks_goes_on_saying_what_it_last_said(world: World) -> None:
    world.own.write_text(DENY + "\n[[limits]]\ncalls = 0\n", encoding="utf-8")
    permissions = await world.open()
    world.own.write_text(DENY + "\n[[rules", encoding="utf-8")
    await permissions.look()
    assert verdict(permissions) == "hidden"
    assert permissions.limits.check(Principal("token", "t", "ide"), SEARCH) is not None
    assert [problem.file for problem in permissions.problems] == [str(world.own)]
    world.own.write_text(ASK, encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), permissions.problems) == ("ask", ())


async def test_a_managed_file_that_cannot_be_read_makes_every_call_ask(world: World) -> None:
    world.managed.mkdir()
    permissions = await world.open()
    assert verdict(permissions) == "ask"
    assert [problem.code for problem in permissions.problems] == ["config.not_a_file"]


async def test_a_managed_file_that_breaks_keeps_its_rules_and_asks_for_the_rest(world: World) -> None:
    world.managed.write_text('[[rules]]\neffect = "deny"\npattern = "mail/*"\n', encoding="utf-8")
    permissions = await world.open()
    assert verdict(permissions) == "allow"
    for broken in ("[[rules", "[[rules]", "rules = 1"):
        world.managed.write_text(broken, encoding="utf-8")
        await permissions.look()
    assert verdict(permissions) == "ask"
    world.managed.write_text("[[rules", encoding="utf-8")
    await permissions.look()
    assert verdict(permissions) == "ask"


@pytest.mark.parametrize("broken", ["", "[[rules", "rules = 1", DENY + "port = ", b"\xff\xfe", None])
async def test_a_file_that_breaks_goes_on_saying_what_it_last_said_over_restarts_too(
    world: World, broken: str | bytes | None
) -> None:
    world.own.write_text(DENY + LIMIT, encoding="utf-8")
    (rule,) = (await world.open()).list()
    if broken is None:
        world.own.unlink()
        world.own.mkdir()
    else:
        world.own.write_bytes(broken.encode() if isinstance(broken, str) else broken)
    for permissions in (await world.open(), await world.open()):
        assert [each.id for each in permissions.list()] == [rule.id]
        assert (verdict(permissions), limited(permissions)) == ("hidden", True)
        (problem,) = permissions.problems
        assert problem.file == str(world.own)
        assert "Its last readable content stays in force." in (problem.hint or "")
    if broken is None:
        world.own.rmdir()
    world.own.write_text(ASK, encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), limited(permissions), permissions.problems) == ("ask", False, ())
    assert ((world.folder / "last-rules").stat().st_mode & 0o777) == 0o700
    assert ((world.folder / "last-rules" / "toolcrib.toml").stat().st_mode & 0o777) == 0o600


async def test_of_a_file_that_could_never_be_read_nobody_knows_what_it_forbids(world: World) -> None:
    world.own.write_text('port = 4242\n[[rules]]\neffect = "deny\n', encoding="utf-8")
    permissions = await world.open()
    await permissions.add({"effect": "allow", "pattern": "*"}, by="owner")
    for _ in range(2):
        assert verdict(permissions) == "hidden"
        (problem,) = permissions.problems
        assert (problem.file, problem.line) == (str(world.own), 3)
        assert "no tool may be used" in (problem.hint or "")
        stand_in = permissions.list()[0]
        assert (stand_in.effect, stand_in.pattern, stand_in.origin.line) == ("deny", "*", 3)
        assert "until it is fixed" in (stand_in.reason or "")
        await permissions.look()
    world.own.write_text("port = 4242\n", encoding="utf-8")
    await permissions.look()
    assert (verdict(permissions), permissions.problems) == ("allow", ())


async def test_a_file_that_was_taken_away_on_purpose_forbids_nothing(world: World) -> None:
    world.own.write_text(DENY, encoding="utf-8")
    await world.open()
    world.own.unlink()
    assert verdict(await world.open()) == "allow"
    world.own.write_text("[[rules", encoding="utf-8")
    assert verdict(await world.open()) == "hidden", "what it said before it was taken away is no longer known"


async def test_what_the_managed_file_last_said_outlives_a_restart_beside_the_question_to_a_person(world: World) -> None:
    world.managed.write_text(DENY, encoding="utf-8")
    await world.open()
    world.managed.write_text("[[rules", encoding="utf-8")
    permissions = await world.open()
    assert [(each.effect, each.pattern) for each in permissions.list()] == [("deny", "github/*"), ("ask", "*")]


async def test_a_name_that_appears_later_gives_its_rule_a_meaning_at_once(world: World) -> None:
    world.own.write_text('[[rules]]\neffect = "deny"\npattern = "mcp__github__search"\n', encoding="utf-8")
    permissions = await world.open()
    assert (verdict(permissions), len(permissions.problems)) == ("allow", 1)
    world.names = Names({"mcp__github__search": SEARCH})
    assert (verdict(permissions), permissions.problems) == ("hidden", ())
    assert permissions.named("mcp__github__search") == SEARCH


async def test_projects_of_rules_are_compared_by_their_real_paths(world: World) -> None:
    (world.folder / "real").mkdir()
    (world.folder / "link").symlink_to(world.folder / "real")
    permissions = await world.open()
    where = {"projects": [str(world.folder / "link")]}
    await permissions.add({"effect": "deny", "pattern": "github/*", "where": where}, by="owner")
    assert verdict(permissions, cwd=str(world.folder / "real" / "below")) == "hidden"
    assert verdict(permissions, cwd=str(world.folder)) == "allow"


async def test_a_remembered_answer_is_a_rule_like_any_other(world: World) -> None:
    permissions = await world.open()
    rule = Rule("answer-1", "deny", "github/search", RuleOrigin("remembered"))
    await permissions.remember(rule)
    assert verdict(permissions) == "hidden"
    assert (await world.open()).list() == (rule,)


async def test_an_agent_has_its_permissions_its_skills_and_the_bundles_of_every_project_around_it(world: World) -> None:
    world.agents = {"none": AgentGrants(()), "skilled": AgentGrants((), ("mcp__github",)), "plain": AgentGrants()}
    world.names = Names(servers={"mcp__github": "github"})
    permissions = await world.open()
    agents = ("none", "skilled", "plain", "nobody")
    assert [verdict(permissions, agent=agent) for agent in agents] == ["hidden", "allow", "allow", "hidden"]
    await permissions.bundles.create(Bundle("finder", "Finder", ("mcp__github",)))
    outer, inner = world.folder / "outer", world.folder / "outer" / "inner"
    await permissions.projects.save(Project(str(outer), bundles=("finder",)))
    await permissions.projects.save(Project(str(inner), bundles=("reviewer",)))
    assert verdict(permissions, agent="none", cwd=str(inner)) == "allow"
    assert verdict(permissions, agent="none", cwd=str(world.folder)) == "hidden"
    assert verdict(permissions, agent="nobody", cwd=str(inner)) == "hidden"


async def test_bundles_are_made_changed_and_removed_and_presets_are_not(world: World) -> None:
    permissions = await world.open()
    made = await permissions.bundles.create(Bundle("mine", "Mine", ("github/*",)))
    await permissions.bundles.replace(Bundle("mine", "Mine", ("mail/*",)))
    await permissions.projects.save(Project(str(world.folder), bundles=("mine", "reviewer")))
    again = await world.open()
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
    assert (await permissions.projects.get(str(world.folder))).bundles == ("reviewer",)
    with pytest.raises(NotFound):
        await permissions.remove_bundle("mine")


async def test_projects_are_kept_by_their_real_paths_and_say_whether_they_are_trusted(world: World) -> None:
    (world.folder / "trusted").mkdir()
    (world.folder / "link").symlink_to(world.folder / "trusted")
    permissions = await world.open()
    saved = await permissions.projects.save(Project(str(world.folder / "link"), agent="a"))
    assert saved == Project(str(world.folder / "trusted"), trusted=True, agent="a")
    assert await (await world.open()).projects.list() == (saved,)
    with pytest.raises(NotFound):
        await permissions.projects.save(Project(str(world.folder), bundles=("no-such",)))
    await permissions.projects.remove(str(world.folder / "link"))
    with pytest.raises(NotFound):
        await permissions.projects.get(str(world.folder / "trusted"))


async def test_a_change_of_an_agent_voids_what_was_decided(world: World) -> None:
    permissions = await world.open()
    before = permissions.rules()
    world.book.renew()
    assert permissions.rules().version > before.version
