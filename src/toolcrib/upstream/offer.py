"""What a server offers: its introduction and the definitions of its tools, prompts, resources, templates and skills.

An offer is a value. `read_offer` reads it from an open connection within limits, it is stored as JSON across restarts,
and `tools_of` turns it into tools under the server's name in one project. One invalid item becomes a problem that names
it and never hides the others.

Must never trust a server's sizes: pages, items and problems are counted.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, overload

import orjson

from toolcrib.base.cooperative import Pacer, collect_paced
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object, loads
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, Era
from toolcrib.model.servers import NO_NAMES, ServerNames, ToolFilter
from toolcrib.model.skills import SKILLS_EXTENSION, entry_fault
from toolcrib.model.sources import ProtocolError
from toolcrib.model.text import visible
from toolcrib.model.tools import ContentItem, Tool, ToolRef
from toolcrib.upstream.definitions import DESCRIPTION_LIMIT, UpstreamTool, check_tool
from toolcrib.upstream.handshake import ServerIntroduction

PAGES_LIMIT: Final = 100
ITEMS_LIMIT: Final = 10_000
PROBLEMS_LIMIT: Final = 100

AskServer = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Sends a request without a caller and returns its result."""

Definitions = tuple[JsonObject, ...]
ToolCheck = tuple[JsonObject, UpstreamTool | Problem]
"""A tool as listed by a server, and its validated form or problem."""
ToolChecks = Mapping[str, ToolCheck]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of listed item: the request that lists it, and the member that identifies an item."""

    capability: str
    method: str
    member: str
    key: str
    noun: str


TOOLS: Final = Kind("tools", "tools/list", "tools", "name", "tool")
PROMPTS: Final = Kind("prompts", "prompts/list", "prompts", "name", "prompt")
RESOURCES: Final = Kind("resources", "resources/list", "resources", "uri", "resource")
TEMPLATES: Final = Kind(
    "resources", "resources/templates/list", "resourceTemplates", "uriTemplate", "template of resources"
)
SKILLS: Final = Kind("resources", "skills/list", "skills", "uri", "skill")
UNLISTED_SKILLS_LIMIT: Final = 100
"""Skills that a client named and the server does not list. They are asked for one by one."""
KINDS: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES, SKILLS)


@dataclass(frozen=True)
class Offer:
    """Everything a server offered when it was last asked. `problems` lists what could not be used."""

    era: Era
    version: str
    capabilities: JsonObject = field(default_factory=dict[str, Json], repr=False)
    server_info: JsonObject = field(default_factory=dict[str, Json])
    instructions: str | None = field(default=None, repr=False)
    tools: Definitions = field(default=(), repr=False)
    prompts: Definitions = field(default=(), repr=False)
    resources: Definitions = field(default=(), repr=False)
    templates: Definitions = field(default=(), repr=False)
    skills: Definitions = field(default=(), repr=False)
    problems: tuple[Problem, ...] = ()
    known: ToolChecks = field(default_factory=dict[str, ToolCheck], repr=False, compare=False)
    """Validation results to reuse, from an earlier offer or from this one."""

    @cached_property
    def checks(self) -> ToolChecks:
        """The validation result of each tool, by name. An identical definition object reuses its earlier result."""
        found: dict[str, ToolCheck] = {}
        for name, check in self._check_tools():
            found.setdefault(name, check)
        return found

    def _check_tools(self) -> Iterator[tuple[str, ToolCheck]]:
        """Yield the validation results one by one."""
        strict = self.era == "modern"
        for raw in self.tools:
            name = raw["name"]
            known = self.known.get(name)
            yield (
                name,
                known if known is not None and known[0] is raw else (raw, check_tool(raw, strict_headers=strict)),
            )

    async def check_all(self) -> "Offer":
        """Return this offer with all its tools validated, so that `checks` is available at once."""
        return replace(self, known=dict(await collect_paced(self._check_tools())))

    @cached_property
    def checked_tools(self) -> tuple[tuple[UpstreamTool, ...], tuple[Problem, ...]]:
        """The tools that can be offered, and the problems of those that cannot."""
        found = [check for _, check in self.checks.values()]
        return (
            tuple(each for each in found if isinstance(each, UpstreamTool)),
            tuple(each for each in found if isinstance(each, Problem))[:PROBLEMS_LIMIT],
        )

    @property
    def title(self) -> str | None:
        """The server's name for itself."""
        named: Json = self.server_info.get("title") or self.server_info.get("name")
        return named if isinstance(named, str) else None

    def list_of(self, kind: Kind) -> Definitions:
        """Return the items of one kind."""
        lists = (self.tools, self.prompts, self.resources, self.templates, self.skills)
        return dict(zip(KINDS, lists, strict=True))[kind]

    def to_json(self) -> bytes:
        """Return the stored form, without tools nested too deep to serialize. Those are read from the server again."""
        stored: JsonObject = {
            "era": self.era,
            "version": self.version,
            "capabilities": self.capabilities,
            "serverInfo": self.server_info,
            "instructions": self.instructions,
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "templates": self.templates,
            "skills": self.skills,
            "problems": [problem.to_json() for problem in self.problems],
        }
        try:
            return dumps(stored)
        except TypeError:
            return dumps({**stored, "tools": [tool for tool in self.tools if _is_flat(tool)]})

    @classmethod
    def from_json(cls, stored: bytes) -> "Offer | None":
        """Parse the stored form. Returns None if it is invalid."""
        try:
            row: Json = loads(stored)
        except orjson.JSONDecodeError:
            return None
        match row:
            case {"era": "legacy" | "modern" as era, "version": str(version)}:
                lists = [_items(row.get(name)) for name in ("tools", "prompts", "resources", "templates", "skills")]
                return cls(
                    era,
                    version,
                    _object(row.get("capabilities")),
                    _object(row.get("serverInfo")),
                    instructions if isinstance(instructions := row.get("instructions"), str) else None,
                    *(
                        tuple(item for item in items if isinstance(item.get(kind.key), str))
                        for kind, items in zip(KINDS, lists, strict=True)
                    ),
                    problems=tuple(_problems(row.get("problems"))),
                )
            case _:
                return None


def tools_of(
    offer: Offer, alias: str, chosen: ToolFilter, timeout: float | None = None, names: ServerNames = NO_NAMES
) -> tuple[Sequence[Tool], tuple[Problem, ...]]:
    """Return the tools of a server known as `alias` that pass its owner's filter, and all problems."""
    definitions, unusable = offer.checked_tools
    passing = [each for each in definitions if passes(chosen, each.name)]
    return Tools(passing, alias, timeout, names), (*offer.problems, *unusable)


class Tools(Sequence[Tool]):
    """A sequence of tools built on first access, so that iterating in batches never blocks on all of them."""

    def __init__(
        self, definitions: Sequence[UpstreamTool], alias: str, timeout: float | None, names: ServerNames
    ) -> None:
        self._definitions = definitions
        self._as = (alias, timeout, names)

    def __len__(self) -> int:
        return len(self._definitions)

    @overload
    def __getitem__(self, which: int) -> Tool: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, which: int | slice) -> Tool | tuple[Tool, ...]:
        if isinstance(which, slice):
            return tuple(_tool(each, *self._as) for each in self._definitions[which])
        return _tool(self._definitions[which], *self._as)


def passes(chosen: ToolFilter, name: str) -> bool:
    """Return whether a filter accepts a tool of this name."""
    if not chosen.deny and chosen.allow is None:
        return True
    if any(fnmatchcase(name, pattern) for pattern in chosen.deny):
        return False
    return chosen.allow is None or any(fnmatchcase(name, pattern) for pattern in chosen.allow)


def content_of(items: Sequence[JsonObject], kind: Kind, alias: str) -> tuple[ContentItem, ...]:
    """Return the prompts, resources or templates of a server known as `alias`."""
    return tuple(ContentItem(alias, item[kind.key], item) for item in items)


def _tool(definition: UpstreamTool, alias: str, timeout: float | None, names: ServerNames) -> Tool:
    """Return the tool of a definition, cached: the same object spares consumers a comparison."""
    key = (alias, timeout, names)
    made = definition.made.get(key)
    if made is None:
        made = definition.made[key] = _build_tool(definition, *key)
    return made


def _build_tool(definition: UpstreamTool, alias: str, timeout: float | None, names: ServerNames) -> Tool:
    return Tool(
        ref=ToolRef(alias, definition.name),
        description=definition.description,
        input_schema=definition.input_schema,
        kind="upstream",
        title=definition.title,
        output_schema=definition.output_schema,
        annotations=definition.annotations,
        marks=definition.marks,
        timeout=timeout,
        problems=definition.problems,
        extra=definition.extra,
        names=names,
    )


async def read_offer(
    ask: AskServer, introduction: ServerIntroduction, before: Offer | None = None, kinds: Sequence[Kind] = KINDS
) -> Offer:
    """Read everything a server offers, or only some kinds; the others keep their value from `before`.

    A list that the server refuses becomes a problem and keeps its previous items. Raises when the connection fails.
    """
    instructions = introduction.instructions
    problems = [problem for problem in before.problems if not _is_of(problem, kinds)] if before is not None else []
    lists: dict[Kind, Definitions] = {}
    for kind in KINDS:
        known = before.list_of(kind) if before is not None else ()
        if kind not in kinds or not _is_offered(introduction, kind):
            lists[kind] = known if kind not in kinds else ()
            continue
        reading = _Reading(kind, kind.capability in introduction.capabilities, known)
        lists[kind] = await reading.read(ask)
        if kind is SKILLS:
            lists[kind] += await _unlisted_skills(ask, known, lists[kind])
        problems.extend(reading.problems)
    return Offer(
        era=introduction.era,
        version=introduction.version,
        capabilities=introduction.capabilities if _is_flat(introduction.capabilities) else {},
        server_info=introduction.server_info if _is_flat(introduction.server_info) else {},
        instructions=instructions[:DESCRIPTION_LIMIT] if instructions is not None else None,
        tools=lists[TOOLS],
        prompts=lists[PROMPTS],
        resources=lists[RESOURCES],
        templates=lists[TEMPLATES],
        skills=lists[SKILLS],
        problems=tuple(problems[:PROBLEMS_LIMIT]),
        known=before.checks if before is not None and before.era == introduction.era else {},
    )


async def with_skill(ask: AskServer, offer: Offer, uri: str) -> Offer:
    """Return the offer with a skill that the server does not list. Raises `ProtocolError` if it has no such skill."""
    if not _has_skills(offer.capabilities):
        raise ProtocolError(INVALID_PARAMS, "The server has no skills.")
    entry = await _read_skill(ask, uri)
    if (fault := _skill_fault(entry, uri)) is not None:
        raise Unavailable("server.reply_invalid", f"The skill {visible(uri[:200])} cannot be used: {fault}.")
    return replace(offer, skills=(*offer.skills, entry))


async def _unlisted_skills(ask: AskServer, known: Definitions, listed: Definitions) -> Definitions:
    """Return the known skills that are missing in the list but that the server still has."""
    uris = {entry["uri"] for entry in listed}
    found: list[JsonObject] = []
    for before in [entry for entry in known if entry["uri"] not in uris][-UNLISTED_SKILLS_LIMIT:]:
        with contextlib.suppress(ProtocolError):
            entry = await _read_skill(ask, before["uri"])
            if _skill_fault(entry, before["uri"]) is None:
                found.append(before if _text(before) == _text(entry) else entry)
    return tuple(found)


async def _read_skill(ask: AskServer, uri: str) -> JsonObject:
    """Return the entry of one skill, not validated. Raises `ProtocolError` if the server has none."""
    return _object((await ask("skills/get", {"uri": uri})).get("skill"))


def _skill_fault(entry: JsonObject, uri: str) -> str | None:
    if entry.get("uri") != uri or not _is_flat(entry):
        return "the server answered with another skill, or with none"
    return entry_fault(entry)


def _is_offered(introduction: ServerIntroduction, kind: Kind) -> bool:
    """Return whether to request this kind. Tools always are: some servers do not announce theirs."""
    if kind is SKILLS:
        return _has_skills(introduction.capabilities)
    return kind is TOOLS or kind.capability in introduction.capabilities


def _has_skills(capabilities: JsonObject) -> bool:
    extensions: Json = capabilities.get("extensions")
    return is_object(extensions) and SKILLS_EXTENSION in extensions


class _Reading:
    """Reads one list. `known` are its previous items."""

    def __init__(self, kind: Kind, announced: bool, known: Definitions) -> None:
        self.problems: list[Problem] = []
        self._kind = kind
        self._announced = announced
        self._known: dict[str, JsonObject] = {item[kind.key]: item for item in known}
        self._items: dict[str, JsonObject] = {}

    async def read(self, ask: AskServer) -> Definitions:
        """Return the items of all pages, up to the limits; the previous items if the first page is refused."""
        cursors: set[str] = set()
        params: JsonObject = {}
        for _ in range(PAGES_LIMIT):
            try:
                page = await ask(self._kind.method, params)
            except ProtocolError as error:
                return self._keep_known(error)
            cursor: Json = page.get("nextCursor")
            if not await self._take(page.get(self._kind.member)) or not isinstance(cursor, str) or not cursor:
                break
            if cursor in cursors:
                self._note("repeats a page; the rest is ignored")
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        else:
            self._note(f"has more than {PAGES_LIMIT} pages; the rest is ignored")
        return tuple(self._items.values())

    def _keep_known(self, error: ProtocolError) -> Definitions:
        if self._items:
            self._note(f"is incomplete: the server answered with error {error.code}, {visible(error.message[:200])}")
            return tuple(self._items.values())
        if self._announced or error.code != METHOD_NOT_FOUND:
            self._note(
                f"could not be read: the server answered with error {error.code}, {visible(error.message[:200])}"
            )
        return tuple(self._known.values()) if self._announced else ()

    async def _take(self, listed: Json) -> bool:
        """Add the items of a page. Returns False if no further page should be read."""
        pace = Pacer()
        if not is_array(listed):
            self._note(f"has a page without `{self._kind.member}`")
            return False
        for number, item in enumerate(listed, len(self._items) + 1):
            key: Json = item.get(self._kind.key) if is_object(item) else None
            if not isinstance(key, str) or not key:
                self._note(f"has an item without `{self._kind.key}` (number {number}), which is skipped")
            elif self._kind is not TOOLS and not _is_flat(item):  # an invalid member of a tool is dropped on its own
                self._note(f"has {visible(key[:128])!r} nested too deep, which is skipped")
            elif self._kind is SKILLS and (fault := entry_fault(item)) is not None:
                self._note(f"has {visible(key[:128])!r}, which is skipped: {fault}")
            elif key in self._items:
                self._note(f"names {visible(key[:128])!r} twice; the first one is used")
            elif len(self._items) >= ITEMS_LIMIT:
                self._note(f"has more than {ITEMS_LIMIT} items; the rest is ignored")
                return False
            else:
                self._items[key] = self._same_as_before(key, item)
            await pace.pause()
        return True

    def _same_as_before(self, key: str, item: JsonObject) -> JsonObject:
        """Return the previous object if it serializes identically, which avoids validating it again."""
        before = self._known.get(key)
        return before if before is not None and _text(before) == (_text(item) or b"") else item

    def _note(self, what: str) -> None:
        if len(self.problems) < PROBLEMS_LIMIT:
            self.problems.append(Problem("server.offer", f"{_subject(self._kind)} {what}."))


def _subject(kind: Kind) -> str:
    return f"The server's list of {kind.noun}s" if kind is not TEMPLATES else "The server's list of templates"


def _is_of(problem: Problem, kinds: Sequence[Kind]) -> bool:
    return any(problem.message.startswith(f"{_subject(kind)} ") for kind in kinds)


def _text(value: Json) -> bytes | None:
    """Serialize a value. Returns None if it is nested too deep."""
    try:
        return dumps(value)
    except TypeError:
        return None


def _is_flat(value: Json) -> bool:
    """Return whether a value is shallow enough to serialize."""
    return _text(value) is not None


def _object(value: Json) -> JsonObject:
    return value if is_object(value) else {}


def _items(value: Json) -> list[JsonObject]:
    return [item for item in value if is_object(item)] if is_array(value) else []


def _problems(value: Json) -> list[Problem]:
    rows = _items(value)
    return [Problem(str(row.get("code")), str(row.get("message"))) for row in rows if row.get("code") == "server.offer"]
