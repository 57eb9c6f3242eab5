"""The permissions in force: rules from all places, limits, bundles and projects, as versioned state.

Rules come from the managed file of the machine, from `toolcrib.toml` in the home, and from the database, where the
interfaces add and remove them and answers are remembered. Files are read again when they change; see `rule_files` for
unreadable ones. Every change that affects decisions assigns the rules a new version, so no earlier decision is reused.

Must never let a read failure end in fewer restrictions than were in force.
"""

import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from toolcrib.gate.policy.bundles import Bundles, Projects
from toolcrib.gate.policy.decide import Creator, Grants
from toolcrib.gate.policy.fields import FaultyRequest
from toolcrib.gate.policy.flows import Acts, Flows, acts_of, read_flows_file
from toolcrib.gate.policy.limits import Limits, read_limits_file
from toolcrib.gate.policy.patterns import Names, resolve_pattern
from toolcrib.gate.policy.rule_files import RuleFile, RuleFileState, with_real_projects
from toolcrib.gate.policy.rule_parser import MEMBERS, Read, read_rule, read_rules_file
from toolcrib.gate.policy.rule_presets import RulePreset
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.agents import unknown_agent
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import AgentGrants, Binding, Rule, RuleOrigin, Where
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tokens import Token
from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import Store
from toolcrib.store.rules import delete_rule, load_rules, replace_rule, save_rule, spend_rule

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between two checks of the files in `follow`."""
_DATABASE = "database"
_LEVELS = "levels"
"""The place of rules derived from the levels of apps."""
_MANAGED: Mapping[str, str] = {
    "darwin": "/Library/Application Support/Toolcrib/managed.toml",
    "win32": "C:/ProgramData/Toolcrib/managed.toml",
}
_NOTHING_GIVEN = Grants(permissions=())


def managed_file() -> Path:
    """Return the file for rules of the machine's administrator. No setting or variable can change its location."""
    return Path(_MANAGED.get(sys.platform, "/etc/toolcrib/managed.toml"))


class RuleBook:
    """The rules of all places (files, database, sessions), and the value in force.

    A place is replaced as a whole. `current` is the value in force, the same object until something changes. While
    `may_be_outdated` is set, because a rule expires or a file has a problem, call the book instead to read it.
    `on_change` is called when listings may have changed.
    """

    def __init__(
        self,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._places: dict[str, tuple[Rule, ...]] = {}
        self._recheck: Callable[[], None] | None = None
        self._acts: Acts = acts_of
        self.current = Rules()
        self.may_be_outdated = False

    def judge_acts(self, acts: Acts) -> None:
        """Use this function for what a call does, from now on."""
        self._acts = acts
        self.current = Rules(self.current.version)
        self.renew()

    def __call__(self) -> Rules:
        """Return the rules in force."""
        if self._recheck is not None:
            self._recheck()
        ends = self.current.next_expiry
        if ends is not None and self._clock() >= ends:
            self._compute()
        return self.current

    def recheck(self, read_again: Callable[[], None] | None) -> None:
        """Call `read_again` before every read of the rules from now on. None ends that."""
        self._recheck = read_again
        self.may_be_outdated = read_again is not None or self.current.next_expiry is not None

    def fingerprint(self) -> str:
        """Return the fingerprint of the rules in force."""
        return self().fingerprint

    @property
    def places(self) -> Mapping[str, tuple[Rule, ...]]:
        """All rules by place, including expired ones."""
        return self._places

    def set(self, place: str, rules: Sequence[Rule]) -> None:
        """Replace the rules of a place."""
        if self._places.get(place, ()) != tuple(rules):
            self._places[place] = tuple(rules)
            self.renew()

    def renew(self) -> None:
        """Assign a new version, because something that decisions depend on has changed."""
        self._compute()
        self._on_change()

    def _compute(self) -> None:
        everything = (rule for rules in self._places.values() for rule in rules)
        before = self.current
        rules = Rules.at(self._clock(), before.version + 1, everything, self._acts)
        same = (rules.rules, rules.expired) == (before.rules, before.expired)
        self.current = before.with_version(rules.version) if same else rules
        self.may_be_outdated = self._recheck is not None or self.current.next_expiry is not None
        self.current.arrange()


class Permissions:
    """Everything that decisions depend on besides the tools themselves. Call `load`, then `follow`.

    `last_rules` is a folder for the last readable version of each file. `creator_now` returns the current state of a
    session's creator, or None if it was revoked. `names` must return the same object until names change. `on_file` is
    called with the previous and current state of a file, also across runs.
    """

    def __init__(
        self,
        store: Store,
        *,
        book: RuleBook,
        bundles: Bundles,
        projects: Projects,
        managed: Path,
        settings_file: Path,
        last_rules: Path,
        names: Callable[[], Names],
        of_agent: Callable[[str], AgentGrants | None],
        creator_now: Callable[[Principal], Principal | None] = lambda creator: creator,
        on_file: Callable[[RuleFile, RuleFileState, RuleFileState], None] = lambda _file, _before, _now: None,
    ) -> None:
        self._store = store
        self._files = (
            RuleFile("managed", managed, last_rules / "managed.toml"),
            RuleFile("user", settings_file, last_rules / "toolcrib.toml"),
        )
        self._names = names
        self._known_names = Names()
        self._of_agent = of_agent
        self._creator_now = creator_now
        self._on_file = on_file
        self._book = book
        self._lock = anyio.Lock()
        self.limits = Limits()
        self.flows = Flows()
        self.bundles = bundles
        self.projects = projects

    async def load(self) -> None:
        """Load the database and the files."""
        await self.reload()
        await self.look()

    async def follow(self) -> None:
        """Poll the files for changes until cancelled. `nodes.policy_epoch` follows a shared database."""
        is_logged = False
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                await self.look()
                is_logged = False
            except Exception:  # boundary: the rules in force stay, and the next attempt may succeed
                if not is_logged:
                    logger.exception("Could not check for changed rules.")
                is_logged = True

    async def look(self) -> None:
        """Read the files again if they changed or had problems."""
        self._known_names = self._names()
        for file in self._files:
            content = await anyio.to_thread.run_sync(file.look)
            if content != file.state.content or file.state.problems:
                self._apply(file, await anyio.to_thread.run_sync(file.read, content, self._known_names))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems in the files."""
        self._read_again()
        return tuple(problem for file in self._files for problem in file.state.problems)

    def rules(self) -> Rules:
        """Return the rules in force. A file's rule with an unknown name applies as soon as the name exists."""
        return self._book()

    def _read_again(self) -> None:
        """Parse rules with problems again if the names have changed."""
        if self._names() is self._known_names:
            return
        self._known_names = self._names()
        for file in self._files:
            if file.state.problems and file.state.content is not None:
                self._apply(file, file.read(file.state.content, self._known_names))

    def grants(self, principal: Principal) -> Grants:
        """Return the grants of a principal. An agent that does not exist has none."""
        known = self._names()
        of_projects = _patterns(self.projects.tools(principal.cwd), known)
        creator = self._creator(principal.creator)
        if principal.agent is None:
            return Grants(None, of_projects, creator)
        agent = self._of_agent(principal.agent)
        if agent is None:
            return _NOTHING_GIVEN
        own = None if agent.permissions is None else _patterns(agent.permissions, known)
        return Grants(own, (*_patterns(agent.bundles, known), *of_projects), creator)

    def _creator(self, creator: Principal | None) -> Creator | None:
        """Return the current rights of a creator. A revoked one has none."""
        if creator is None:
            return None
        now = self._creator_now(creator)
        return Creator(now, self.grants(now)) if now is not None else Creator(creator, _NOTHING_GIVEN, is_revoked=True)

    def named(self, text: str) -> ToolRef | None:
        """Return the tool with this bare name or model-facing name, or None."""
        return self._names().tools.get(text)

    def has_agent(self, agent: str) -> bool:
        """Return whether there is an agent with this id."""
        return self._of_agent(agent) is not None

    def require_agent(self, agent: str | None) -> None:
        """Raise `agent.unknown` if an agent is named and there is none with this id."""
        if agent is not None and not self.has_agent(agent):
            raise unknown_agent(agent)

    def default_agent(self, cwd: str | Path) -> str | None:
        """Return the agent of the nearest project around a directory, unless it was deleted."""
        agent = self.projects.agent(os.path.realpath(cwd))
        return agent if agent is not None and self.has_agent(agent) else None

    def list(self) -> tuple[Rule, ...]:
        """Return all rules, those of the files first, including expired ones."""
        self._read_again()
        places = self._book.places
        return tuple(rule for place in ("managed", "user", _DATABASE, _LEVELS) for rule in places.get(place, ()))

    def get(self, id: str) -> Rule:
        """Return one rule. Raises `NotFound` (`rule.unknown`)."""
        found = next((rule for rule in self.list() if rule.id == id), None)
        if found is None:
            raise NotFound("rule.unknown", f"Rule {id!r} not found.")
        return found

    async def add(self, raw: Json, *, by: str) -> Rule:
        """Parse and add a rule. Raises `FaultyRequest` (`rule.invalid`) with every fault."""
        rule = await self.draft(raw, by=by)
        await self.remember(rule)
        return rule

    async def draft(self, raw: Json, *, by: str, id: str | None = None) -> Rule:
        """Parse and check a rule without adding it. Raises like `add`."""
        id, now = id or secrets.token_hex(4), datetime.now(UTC)
        origin, now = (
            RuleOrigin("user"),
            now.replace(microsecond=now.microsecond // 1000 * 1000),
        )  # the store's precision
        return await _check_rule(read_rule(raw, self._names(), id=id, origin=origin, created_by=by, created_at=now))

    async def candidates(self, text: str, file: str) -> tuple[Rule, ...]:
        """Return the rules of a file that could replace `toolcrib.toml`. Raises like `add`."""
        read = partial(read_rules_file, text, file, "user", self._names())
        found = await anyio.to_thread.run_sync(read)
        others = (*read_limits_file(text, file).problems, *read_flows_file(text, file).problems)
        problems = found.problems if not found.whole else (*found.problems, *others)
        wrong = [f"{problem.file}, line {problem.line}: {problem.message}" for problem in problems]
        if wrong:
            raise FaultyRequest.of("rule.invalid", "file", " ".join(wrong))
        return tuple(await anyio.to_thread.run_sync(lambda: [with_real_projects(rule) for rule in found.rules]))

    async def change(self, id: str, raw: JsonObject) -> Rule:
        """Change the given members of a rule. None removes a member. Raises like `add` and `remove`."""
        rule = self._check_removable(id)
        members = {key: value for key, value in rule.to_json().items() if key in MEMBERS} | raw
        given = {key: value for key, value in members.items() if value is not None}
        made = read_rule(
            given,
            self._names(),
            id=id,
            origin=rule.origin,
            created_by=rule.created_by,
            created_at=rule.created_at,
        )
        changed = await _check_rule(made)
        async with self._lock:
            if not await replace_rule(self._store, changed):
                raise NotFound("rule.unknown", f"Rule {id!r} not found.")
            self._set_stored(changed if each.id == id else each for each in self._stored_rules)
        return changed

    async def remember(self, rule: Rule) -> None:
        """Store a rule that was made elsewhere, such as a remembered answer."""
        async with self._lock:
            await save_rule(self._store, rule)
            self._set_stored((*self._stored_rules, rule))

    async def spend(self, id: str) -> bool:
        """Count a call against a rule that is limited to a number of calls. Returns False if none is left."""
        async with self._lock:
            is_counted = await spend_rule(self._store, id)
            self._set_stored(
                replace(each, uses=each.uses - 1 if is_counted else 0) if each.id == id and each.uses else each
                for each in self._stored_rules
            )
        return is_counted

    def has_preset(self, preset: RulePreset) -> bool:
        """Return whether a preset is on: all its rules are in force."""
        known = {rule.id for rule in self._stored_rules}
        return all(rule.id in known for rule in preset.rules)

    async def switch_preset(self, preset: RulePreset, *, on: bool, by: str) -> None:
        """Add or remove the rules of a preset. Idempotent."""
        ids = {rule.id for rule in preset.rules}
        known = {rule.id for rule in self._stored_rules}
        now = datetime.now(UTC)
        for rule in preset.made(by=by, at=now.replace(microsecond=now.microsecond // 1000 * 1000)) if on else ():
            if rule.id not in known:
                await self.remember(rule)
        for id in () if on else sorted(ids & known):
            await self.remove(id)

    async def remove(self, id: str) -> Rule:
        """Remove a rule. Raises `rule.unknown`, and `rule.in_file` for a rule in a file."""
        rule = self._check_removable(id)
        async with self._lock:
            await delete_rule(self._store, id)
            self._set_stored(each for each in self._stored_rules if each.id != id)
        return rule

    async def remove_bundle(self, id: str) -> None:
        """Remove a bundle, also from projects. Raises like `Bundles.remove`."""
        await self.bundles.remove(id)
        await self.projects.without_bundle(id)

    def let_apps_read(self, tokens: Iterable[Token]) -> None:
        """Let apps whose level is `ask` run read-only tools without approvals."""
        self._book.set(_LEVELS, tuple(_reading_rule(token) for token in tokens if token.level == "ask"))

    def _check_removable(self, id: str) -> Rule:
        rule = self.get(id)
        if rule in self._book.places.get(_LEVELS, ()):
            hint = "Connect the app again with another `--level`, or revoke its token."
            raise Conflict("rule.of_level", f"Rule {id} is the access level of an app.", hint)
        if rule.origin.file is not None:
            place = f"{rule.origin.file}, line {rule.origin.line}" if rule.origin.line else rule.origin.file
            raise Conflict("rule.in_file", f"Rule {id} is defined in {place}.", f"Edit {place}.")
        return rule

    @property
    def _stored_rules(self) -> tuple[Rule, ...]:
        return self._book.places.get(_DATABASE, ())

    def renew(self) -> None:
        """Decide everything anew: something that is not stored here has changed, such as the trust in a project."""
        self._book.renew()

    async def reload(self) -> None:
        """Load what the database holds again."""
        async with self._lock:
            self._set_stored(await load_rules(self._store))
        await self.bundles.load()
        await self.projects.load()

    def _set_stored(self, rules: Iterable[Rule]) -> None:
        self._book.set(_DATABASE, tuple(rules))

    def _apply(self, file: RuleFile, new_state: RuleFileState) -> None:
        for problem in new_state.problems:
            if problem not in file.state.problems:
                hint = f" {problem.hint}" if problem.hint else ""
                logger.warning("%s:%s: %s%s", problem.file, problem.line or 1, problem.message, hint)
        before = file.state if file.state.content is not None else file.before
        file.state = new_state
        has_problems = any(each.state.problems for each in self._files)
        self._book.recheck(self._read_again if has_problems else None)
        self.limits.set([limit for each in self._files for limit in each.state.limits])
        if self.flows.set(entry for each in self._files for entry in each.state.flows):
            self._book.judge_acts(self.flows.acts)
        self._book.set(file.kind, new_state.rules)
        self._on_file(file, before, new_state)


def _reading_rule(token: Token) -> Rule:
    return Rule(
        id=f"level-{token.name}",
        effect="allow",
        pattern="*",
        origin=RuleOrigin("default"),
        reason=f"The access level of {token.name} allows read-only tools without asking.",
        created_at=token.created_at,
        where=Where(read_only=True),
        principal=Binding("token", token.source, token.agent, token.name, token.id),
    )


async def _check_rule(read: Read) -> Rule:
    if read.rule is None:
        raise FaultyRequest("rule.invalid", read.faults)
    return await anyio.to_thread.run_sync(with_real_projects, read.rule)


def _patterns(texts: Iterable[str], known: Names) -> tuple[str, ...]:
    """Return the patterns of these texts, without unknown ones."""
    return tuple(pattern for text in texts if (pattern := resolve_pattern(text, known)) is not None)
