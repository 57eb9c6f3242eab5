"""What is allowed now: the rules of all places, the limits, the bundles and the projects, alive and numbered.

Rules stand in the managed file of the machine, in `toolcrib.toml` of the home, and in the database, where the doors add
and remove them and answers are remembered. Files are read again when they change; see `rule_files` for those that
cannot be read. Whatever decisions depend on gives the rules a new number, so nothing that was decided before is used
any longer.

Above: the gate asks `rules`, `grants` and `limits`; the doors change what is here. Below: `rules`, `rule_files`,
`limits`, `bundles`, the store. It must never let a failure to read end in fewer restrictions than were in force.
"""

import logging
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from toolcrib.errors import Conflict, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import AgentGrants, Origin, Rule
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tools import ToolRef
from toolcrib.policy.bundles import Bundles, Projects
from toolcrib.policy.decide import Creator, Grants
from toolcrib.policy.limits import Limits, read_limits_file
from toolcrib.policy.members import FaultyRequest
from toolcrib.policy.patterns import Names, understood
from toolcrib.policy.reading import MEMBERS, Read, read_rule, read_rules_file
from toolcrib.policy.rule_files import RuleFile, Said, placed
from toolcrib.policy.rules import RuleBook, Rules
from toolcrib.store.engine import Store
from toolcrib.store.rules import delete_rule, load_rules, replace_rule, save_rule

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often `follow` looks whether a file changed."""
_DATABASE = "database"
_MANAGED: Mapping[str, str] = {
    "darwin": "/Library/Application Support/Toolcrib/managed.toml",
    "win32": "C:/ProgramData/Toolcrib/managed.toml",
}
_NOTHING_GIVEN = Grants(permissions=())


def managed_file() -> Path:
    """Where the administrator of this machine writes rules. No setting and no variable can name another place."""
    return Path(_MANAGED.get(sys.platform, "/etc/toolcrib/managed.toml"))


class Permissions:
    """Everything that decisions depend on beside the tools themselves. `load` first, then `follow`.

    `last_rules` is a folder for what the files said when they could last be read. `names` gives the same object until
    there are other names; `on_change` hears that lists may be others now, `on_file` which rules a file has more and
    which no longer, also since the run before.
    """

    def __init__(
        self,
        store: Store,
        *,
        managed: Path,
        settings_file: Path,
        last_rules: Path,
        names: Callable[[], Names],
        of_agent: Callable[[str], AgentGrants | None],
        trusted: Callable[[str], bool] = lambda _: False,
        on_change: Callable[[], None] = lambda: None,
        on_file: Callable[[RuleFile, Sequence[Rule], Sequence[Rule]], None] = lambda _file, _added, _removed: None,
    ) -> None:
        self._store = store
        self._files = (
            RuleFile("managed", managed, last_rules / "managed.toml"),
            RuleFile("user", settings_file, last_rules / "toolcrib.toml"),
        )
        self._names = names
        self._known = Names()
        self._unclear = False
        self._of_agent = of_agent
        self._on_change = on_change
        self._on_file = on_file
        self._book = RuleBook()
        self._lock = anyio.Lock()
        self.limits = Limits()
        self.bundles = Bundles(store, names, self.changed)
        self.projects = Projects(store, self.bundles, trusted, self.changed)

    async def load(self) -> None:
        """Take up what the database and the files have."""
        await self._load_kept()
        await self.look()

    async def follow(self) -> None:
        """Notice what others change, in files and in a database that is shared, for as long as this runs."""
        told = False
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                await self.look()
                if self._store.shared:
                    await self._load_kept()
                told = False
            except Exception:  # boundary: what was in force stays so, and the next look may work
                if not told:
                    logger.exception("Changes of rules cannot be looked for.")
                told = True

    async def look(self) -> None:
        """Read the files again, if they changed or had something that could not be understood."""
        self._known = self._names()
        for file in self._files:
            content = await anyio.to_thread.run_sync(file.look)
            if content != file.said.content or file.said.problems:
                self._take(file, await anyio.to_thread.run_sync(file.read, content, self._known))

    def changed(self) -> None:
        """Something that grants depend on changed, such as an agent: what was decided before is void."""
        self._book.renew()
        self._on_change()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong in the files."""
        self._read_again()
        return tuple(problem for file in self._files for problem in file.said.problems)

    def rules(self) -> Rules:
        """The rules in force now. A rule of a file that named nothing yet counts as soon as its name is there."""
        if self._unclear:
            self._read_again()
        return self._book()

    def _read_again(self) -> None:
        """Understand anew what could not be, if there are other names now."""
        if not self._unclear or self._names() is self._known:
            return
        self._known = self._names()
        for file in self._files:
            if file.said.problems and file.said.content is not None:
                self._take(file, file.read(file.said.content, self._known))

    def grants(self, principal: Principal) -> Grants:
        """What an asker was given. An agent that does not exist, or does no longer, was given nothing."""
        known = self._names()
        of_projects = _patterns(self.projects.tools(principal.cwd), known)
        above = principal.creator
        creator = Creator(above, self.grants(above)) if above is not None else None
        if principal.agent is None:
            return Grants(None, of_projects, creator)
        agent = self._of_agent(principal.agent)
        if agent is None:
            return _NOTHING_GIVEN
        own = None if agent.permissions is None else _patterns(agent.permissions, known)
        return Grants(own, (*_patterns(agent.bundles, known), *of_projects), creator)

    def named(self, text: str) -> ToolRef | None:
        """The tool that a person means by its bare name, or by the name that models see."""
        return self._names().tools.get(text)

    def has_agent(self, agent: str) -> bool:
        """Whether there is an agent of this id."""
        return self._of_agent(agent) is not None

    def list(self) -> tuple[Rule, ...]:
        """All rules: those of the files first, expired ones too."""
        self._read_again()
        places = self._book.places
        return tuple(rule for place in ("managed", "user", _DATABASE) for rule in places.get(place, ()))

    def get(self, id: str) -> Rule:
        """One rule; raises `NotFound` (`rule.unknown`)."""
        found = next((rule for rule in self.list() if rule.id == id), None)
        if found is None:
            raise NotFound("rule.unknown", f"There is no rule {id!r}.")
        return found

    async def add(self, raw: Json, *, by: str) -> Rule:
        """Add a rule as a person writes it. Raises `FaultyRequest` (`rule.invalid`) with every fault."""
        rule = await self.draft(raw, by=by)
        await self.remember(rule)
        return rule

    async def draft(self, raw: Json, *, by: str, id: str | None = None) -> Rule:
        """The rule that a person means by this, checked and not added. Raises as `add` does."""
        id, now = id or secrets.token_hex(4), datetime.now(UTC)
        origin, now = Origin("user"), now.replace(microsecond=now.microsecond // 1000 * 1000)  # as the store keeps it
        return await _checked(read_rule(raw, self._names(), id=id, origin=origin, created_by=by, created_at=now))

    async def candidates(self, text: str, file: str) -> tuple[Rule, ...]:
        """The rules of a file that could take the place of `toolcrib.toml`. Raises as `add` does."""
        read = partial(read_rules_file, text, file, "user", self._names())
        found = await anyio.to_thread.run_sync(read)
        problems = found.problems if not found.whole else (*found.problems, *read_limits_file(text, file).problems)
        wrong = [f"{problem.file}, line {problem.line}: {problem.message}" for problem in problems]
        if wrong:
            raise FaultyRequest.of("rule.invalid", "file", " ".join(wrong))
        return tuple(await anyio.to_thread.run_sync(lambda: [placed(rule) for rule in found.rules]))

    async def change(self, id: str, raw: JsonObject) -> Rule:
        """Change the named members of a rule; one that is None is taken off. Raises as `add` and `remove` do."""
        rule = self._removable(id)
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
        changed = await _checked(made)
        async with self._lock:
            if not await replace_rule(self._store, changed):
                raise NotFound("rule.unknown", f"There is no rule {id!r}.")
            self._keep(changed if each.id == id else each for each in self._kept)
        return changed

    async def remember(self, rule: Rule) -> None:
        """Keep a rule that was made elsewhere, such as an answer for longer than one call."""
        async with self._lock:
            await save_rule(self._store, rule)
            self._keep((*self._kept, rule))

    async def remove(self, id: str) -> Rule:
        """Remove a rule. Raises `rule.unknown`, and `rule.in_file` for one that stands in a file."""
        rule = self._removable(id)
        async with self._lock:
            await delete_rule(self._store, id)
            self._keep(each for each in self._kept if each.id != id)
        return rule

    async def remove_bundle(self, id: str) -> None:
        """Remove a bundle, from the projects that have it too. Raises as `Bundles.remove` does."""
        await self.bundles.remove(id)
        await self.projects.without_bundle(id)

    def _removable(self, id: str) -> Rule:
        rule = self.get(id)
        if rule.origin.file is not None:
            place = f"{rule.origin.file}, line {rule.origin.line}" if rule.origin.line else rule.origin.file
            raise Conflict("rule.in_file", f"Rule {id} stands in {place}.", f"Change it there: {place}.")
        return rule

    @property
    def _kept(self) -> tuple[Rule, ...]:
        return self._book.places.get(_DATABASE, ())

    async def _load_kept(self) -> None:
        async with self._lock:
            self._keep(await load_rules(self._store))
        await self.bundles.load()
        await self.projects.load()

    def _keep(self, rules: Iterable[Rule]) -> None:
        self._set(_DATABASE, tuple(rules))

    def _take(self, file: RuleFile, said: Said) -> None:
        for problem in said.problems:
            if problem not in file.said.problems:
                hint = f" {problem.hint}" if problem.hint else ""
                logger.warning("%s:%s: %s%s", problem.file, problem.line or 1, problem.message, hint)
        before = file.said.rules if file.said.content is not None else file.before
        file.said = said
        self._unclear = any(each.said.problems for each in self._files)
        self.limits.set([limit for each in self._files for limit in each.said.limits])
        self._set(file.kind, said.rules)
        old, new = {rule.id for rule in before}, {rule.id for rule in said.rules}
        if old != new:
            added = [rule for rule in said.rules if rule.id not in old]
            self._on_file(file, added, [rule for rule in before if rule.id not in new])

    def _set(self, place: str, rules: tuple[Rule, ...]) -> None:
        before = self._book()
        self._book.set(place, rules)
        if self._book() is not before:
            self._on_change()


async def _checked(read: Read) -> Rule:
    if read.rule is None:
        raise FaultyRequest("rule.invalid", read.faults)
    return await anyio.to_thread.run_sync(placed, read.rule)


def _patterns(texts: Iterable[str], known: Names) -> tuple[str, ...]:
    """What these texts name; one that means nothing here names nothing."""
    return tuple(pattern for text in texts if (pattern := understood(text, known)) is not None)
