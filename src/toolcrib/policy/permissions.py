"""What is allowed now: the rules of all places, the limits, the bundles and the projects, alive and numbered.

Rules stand in the managed file of the machine, in `toolcrib.toml` of the home, and in the database, where the doors add
and remove them and answers are remembered. Files are read again when they change. One that cannot be read goes on
saying what it last said, beside a problem; if it is the managed one, a person is asked before every call as well.
Whatever decisions depend on gives the rules a new number, so nothing that was decided before is used any longer.

Above: the gate asks `rules`, `grants` and `limits`; the doors change what is here. Below: `rules`, `reading`, `limits`,
`bundles`, the store. It must never let a failure to read end in fewer restrictions than were in force.
"""

import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from toolcrib.config.files import FileText, Unreadable, read_text
from toolcrib.config.syntax.document import SyntaxProblem
from toolcrib.config.syntax.toml import parse
from toolcrib.errors import Conflict, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import AgentGrants, Origin, Rule
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tools import ToolRef
from toolcrib.policy.bundles import Bundles, Projects
from toolcrib.policy.decide import Grants
from toolcrib.policy.limits import Limit, Limits, read_limits_file
from toolcrib.policy.members import FaultyRequest
from toolcrib.policy.patterns import Names, understood
from toolcrib.policy.reading import MEMBERS, Read, read_rule, read_rules_file, stand_in
from toolcrib.policy.rules import RuleBook, Rules
from toolcrib.store.engine import Store
from toolcrib.store.rules import delete_rule, load_rules, replace_rule, save_rule

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often `follow` looks whether a file changed."""
FileKind = Literal["managed", "user"]
_DATABASE = "database"
_MANAGED: Mapping[str, str] = {
    "darwin": "/Library/Application Support/Toolcrib/managed.toml",
    "win32": "C:/ProgramData/Toolcrib/managed.toml",
}
_NOTHING_GIVEN = Grants(permissions=())


def managed_file() -> Path:
    """Where the administrator of this machine writes rules. No setting and no variable can name another place."""
    return Path(_MANAGED.get(sys.platform, "/etc/toolcrib/managed.toml"))


@dataclass(frozen=True, slots=True)
class _Content:
    """What was found at the place of a file, and when it was written."""

    text: FileText | Unreadable | None
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What a file says: `last` is what it said when it could last be read as a whole."""

    content: _Content | None = None
    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()
    problems: tuple[Problem, ...] = ()
    last: "_Said | None" = None


class Permissions:
    """Everything that decisions depend on beside the tools themselves. `load` first, then `follow`.

    `names` gives the same object until there are other names; `on_change` hears that lists may be others now.
    """

    def __init__(
        self,
        store: Store,
        *,
        managed: Path,
        settings_file: Path,
        names: Callable[[], Names],
        of_agent: Callable[[str], AgentGrants | None],
        trusted: Callable[[str], bool] = lambda _: False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._files: dict[FileKind, Path] = {"managed": managed, "user": settings_file}
        self._said: dict[FileKind, _Said] = {"managed": _Said(), "user": _Said()}
        self._names = names
        self._known = Names()
        self._unclear = False
        self._of_agent = of_agent
        self._on_change = on_change
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
        for kind, path in self._files.items():
            content = await anyio.to_thread.run_sync(_look, path)
            before = self._said[kind]
            if content != before.content or before.problems:
                read = partial(_read, content, path, kind, self._known, before)
                self._take(kind, await anyio.to_thread.run_sync(read))

    def changed(self) -> None:
        """Something that grants depend on changed, such as an agent: what was decided before is void."""
        self._book.renew()
        self._on_change()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong in the files."""
        self._read_again()
        return tuple(problem for said in self._said.values() for problem in said.problems)

    def rules(self) -> Rules:
        """The rules in force now. A rule of a file that named nothing yet counts as soon as its name is there."""
        self._read_again()
        return self._book()

    def _read_again(self) -> None:
        """Understand anew what could not be, if there are other names now."""
        if not self._unclear or self._names() is self._known:
            return
        self._known = self._names()
        for kind, path in self._files.items():
            before = self._said[kind]
            if before.problems and before.content is not None:
                self._take(kind, _read(before.content, path, kind, self._known, before))

    def grants(self, principal: Principal) -> Grants:
        """What an asker was given. An agent that does not exist, or does no longer, was given nothing."""
        known = self._names()
        of_projects = _patterns(self.projects.tools(principal.cwd), known)
        if principal.agent is None:
            return Grants(bundles=of_projects)
        agent = self._of_agent(principal.agent)
        if agent is None:
            return _NOTHING_GIVEN
        own = None if agent.permissions is None else _patterns(agent.permissions, known)
        return Grants(own, (*_patterns(agent.bundles, known), *of_projects))

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
        return tuple(rule for place in (*self._files, _DATABASE) for rule in places.get(place, ()))

    def get(self, id: str) -> Rule:
        """One rule; raises `NotFound` (`rule.unknown`)."""
        found = next((rule for rule in self.list() if rule.id == id), None)
        if found is None:
            raise NotFound("rule.unknown", f"There is no rule {id!r}.")
        return found

    async def add(self, raw: Json, *, by: str) -> Rule:
        """Add a rule as a person writes it. Raises `FaultyRequest` (`rule.invalid`) with every fault."""
        rule = await self.draft(raw, id=secrets.token_hex(4), by=by)
        await self.remember(rule)
        return rule

    async def draft(self, raw: Json, *, id: str, by: str) -> Rule:
        """The rule that a person means by this, checked and not added."""
        now = datetime.now(UTC)
        origin, now = Origin("user"), now.replace(microsecond=now.microsecond // 1000 * 1000)  # as the store keeps it
        return await _checked(read_rule(raw, self._names(), id=id, origin=origin, created_by=by, created_at=now))

    async def candidates(self, text: str, file: str) -> tuple[Rule, ...]:
        """The rules of a file that could take the place of `toolcrib.toml`. Raises as `add` does."""
        content = _Content(FileText(text, bom=False, digest=""))
        read = partial(_read, content, Path(file), "user", self._names(), _Said())
        said = await anyio.to_thread.run_sync(read)
        wrong = [f"{problem.file}, line {problem.line}: {problem.message}" for problem in said.problems]
        if wrong:
            raise FaultyRequest.of("rule.invalid", "file", " ".join(wrong))
        return said.rules

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

    def _take(self, kind: FileKind, said: _Said) -> None:
        for problem in said.problems:
            if problem not in self._said[kind].problems:
                logger.warning("%s:%s: %s", problem.file, problem.line or 1, problem.message)
        self._said[kind] = said
        self._unclear = any(each.problems for each in self._said.values())
        self.limits.set([limit for each in self._said.values() for limit in each.limits])
        self._set(kind, said.rules)

    def _set(self, place: str, rules: tuple[Rule, ...]) -> None:
        before = self._book()
        self._book.set(place, rules)
        if self._book() is not before:
            self._on_change()


def _look(path: Path) -> _Content:
    """What a file has now. When it was written is asked first: what changes meanwhile is noticed the next time."""
    try:
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError):
        written_at = None
    return _Content(read_text(path), written_at)


def _read(content: _Content, path: Path, kind: FileKind, known: Names, before: _Said) -> _Said:
    """What a file says now."""
    text = content.text
    if text is None:
        return _Said(content)
    last = before.last if before.last is not None else before
    if isinstance(text, Unreadable):
        return _unchanged(content, last, stand_in(kind, text.problem), (text.problem,))
    read = read_rules_file(text.text, str(path), kind, known, written_at=content.written_at)
    if not _is_toml(text.text):
        return _unchanged(content, last, read.rules, read.problems)
    limits = read_limits_file(text.text, str(path))
    rules = tuple(_placed(rule) for rule in read.rules)
    return _Said(content, rules, limits.limits, (*read.problems, *limits.problems))


def _unchanged(content: _Content, last: _Said, more: tuple[Rule, ...], problems: tuple[Problem, ...]) -> _Said:
    """A file that cannot be read as a whole: what it last said still counts, and perhaps something more."""
    return _Said(content, (*last.rules, *more), last.limits, problems, last)


def _is_toml(text: str) -> bool:
    try:
        parse(text)
    except SyntaxProblem:
        return False
    return True


def _placed(rule: Rule) -> Rule:
    """The rule with the real paths of its projects, which is what askers are compared with."""
    if not rule.where.projects:
        return rule
    real = tuple(os.path.realpath(path) for path in rule.where.projects)
    return replace(rule, where=replace(rule.where, projects=real))


async def _checked(read: Read) -> Rule:
    if read.rule is None:
        raise FaultyRequest("rule.invalid", read.faults)
    return await anyio.to_thread.run_sync(_placed, read.rule)


def _patterns(texts: Iterable[str], known: Names) -> tuple[str, ...]:
    """What these texts name; one that means nothing here names nothing."""
    return tuple(pattern for text in texts if (pattern := understood(text, known)) is not None)
