"""An upstream server reduced to its accepted definitions. Held tools are absent, and hints need acceptance.

The catalog contains these instead of the servers themselves. Must never offer a definition that `pins` did not see.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from toolcrib.gate.pins.definition_changes import DefinitionChange
from toolcrib.gate.pins.lint import (
    NO_CLASHES,
    Clashes,
    holding,
    lint,
    lint_addition,
    lint_alone,
    lint_beside,
    mentions,
)
from toolcrib.gate.pins.pinned_content import PinnedContent
from toolcrib.gate.pins.pins import Review, Sighting
from toolcrib.gate.pins.skill_files import SkillFiles, held_back
from toolcrib.model.errors import NotFound
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.pins import PinKind
from toolcrib.model.problems import Problem
from toolcrib.model.servers import NO_NAMES
from toolcrib.model.sources import CallContext, ContentMethod, ContentSource, NamedSource, RunCall
from toolcrib.model.tools import ContentItem, ServerKind, Tool, ToolRef

IsAccepted = Callable[[Tool], bool]


class PinnedSource:
    """One server with its accepted tools."""

    kind: ServerKind = "upstream"

    def __init__(
        self,
        source: ContentSource,
        tools: Iterable[Tool],
        problems: Iterable[Problem],
        held: Iterable[str] = (),
        content: PinnedContent | None = None,
    ) -> None:
        """`tools` is the result of `counting`, `held` the names of the held tools.

        `problems`, such as the result of `notes`, are added to those of the server.
        """
        self.name = source.name
        self.server_names = source.server_names if isinstance(source, NamedSource) else NO_NAMES
        self._source = source
        self._tools = {tool.ref.tool: tool for tool in tools}
        self._content = content if content is not None else PinnedContent()
        self._notes = (*problems, *self._content.problems)
        self._held = frozenset(held) - self._tools.keys()
        withheld = [name for kind, name in self._content.withheld if kind == "skill"]
        has_skills = bool(withheld or self._content.skills)
        self._skill_files = SkillFiles(self.name, self._content.skills, withheld) if has_skills else None

    def tools(self) -> Sequence[Tool]:
        """Return the tools with accepted definitions."""
        return tuple(self._tools.values())

    def problems(self) -> Sequence[Problem]:
        """Return the server's problems, and notes on what is held back."""
        return (*self._source.problems(), *self._notes)

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Bind the arguments. Raises `Denied` for a held tool, `NotFound` for an unknown one."""
        if tool in self._held:
            raise held_back(ToolRef(self.name, tool))
        if tool not in self._tools:
            raise NotFound("tool.unknown", f"Server `{self.name}` has no tool `{tool}`.")
        return self._source.prepare(tool, arguments, canonical)

    def holds(self, tool: str) -> bool:
        """Return whether a tool, or the skill with this URI, is held back."""
        return tool in self._held or ("skill", tool) in self._content.withheld

    def prompts(self) -> Sequence[ContentItem]:
        """Return the prompts with accepted texts."""
        return self._content.prompts

    def resources(self) -> Sequence[ContentItem]:
        """Return the resources with accepted texts."""
        return self._content.resources

    def templates(self) -> Sequence[ContentItem]:
        """Return the resource templates with accepted texts."""
        return self._content.templates

    async def skills(self) -> Sequence[ContentItem]:
        """Return the skills with accepted manifests."""
        return self._content.skills

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Send a content request to the server. Raises `Denied` for content that is held back."""
        for kind, name in _referenced_items(method, params):
            if (kind, name) in self._content.withheld:
                raise held_back(ToolRef(self.name, name))
        if method != "resources/read" or self._skill_files is None:
            return await self._source.request(method, params, context)
        self._skill_files.check_read(params.get("uri"))
        result = await self._source.request(method, params, context)
        self._skill_files.verify(params.get("uri"), result)
        return result


def _referenced_items(method: ContentMethod, params: JsonObject) -> Iterator[tuple[PinKind, str]]:
    """Yield the items that a request refers to."""
    ref: Json = params.get("ref") if method == "completion/complete" else params
    if not is_object(ref):
        return
    name, uri = ref.get("name"), ref.get("uri")
    if isinstance(name, str) and method in ("prompts/get", "completion/complete"):
        yield "prompt", name
    if isinstance(uri, str):
        yield "resource", uri
        yield "template", uri


class LintedDefinition(NamedTuple):
    """A definition with the findings that depend on it alone, and the names in it that may be those of other tools."""

    definition: JsonObject
    findings: tuple[Problem, ...]
    mentions: frozenset[str]


class _Noted(NamedTuple):
    """A tool with its findings, and what they depend on."""

    tool: Tool
    alone: LintedDefinition
    reads: bool
    beside: tuple[Problem, ...]
    result: Tool


class LintNotes:
    """The lint findings shown with a server's tools. Findings that depend on the tool alone are computed once.

    `others` is the result of `telling_names` for the tools of other servers, and `alike` that of `clashes`. `before`
    has the notes of the previous look at the server. `linted` has the last definitions of the same server, by tool, in
    any project and over any connection; new ones are added to it, and those of tools that are gone are dropped.
    """

    def __init__(
        self,
        seen: Iterable[Sighting[Tool]],
        others: Mapping[str, frozenset[str]],
        alike: Clashes = NO_CLASHES,
        before: "LintNotes | None" = None,
        linted: dict[str, LintedDefinition] | None = None,
    ) -> None:
        self._own = {each.tool.ref.tool for each in seen}
        self._others = others
        self._alike = alike
        self._before = before._noted if before is not None else {}
        self._linted = linted if linted is not None else {}
        for gone in self._linted.keys() - self._own:
            del self._linted[gone]
        self._noted: dict[str, _Noted] = {}

    def add_to(self, tool: Tool, *, reads: bool) -> Tool:
        """Return the tool with its findings, marked read-only if `reads` is set."""
        known = self._before.get(tool.ref.tool)
        if known is None or known.tool is not tool:
            alone = self._lint_alone(tool)
            known = _Noted(tool, alone, False, (), _with_findings(tool, alone.findings, reads=False))
        beside = self._beside(known)
        if known.reads is not reads or known.beside != beside:
            result = _with_findings(tool, (*beside, *known.alone.findings), reads=reads)
            known = known._replace(reads=reads, beside=beside, result=result)
        self._noted[tool.ref.tool] = known
        return known.result

    def _lint_alone(self, tool: Tool) -> LintedDefinition:
        known = self._linted.get(tool.ref.tool)
        if known is None or known.definition != tool.definition:
            known = LintedDefinition(tool.definition, lint_alone(tool), mentions(tool))
            self._linted[tool.ref.tool] = known
        return known

    def _beside(self, noted: _Noted) -> tuple[Problem, ...]:
        named = (noted.alone.mentions & self._others.keys()) - self._own
        return lint_beside(noted.tool, {name: self._others[name] for name in named}, self._alike)


def reviewing(others: Mapping[str, frozenset[str]], alike: Clashes) -> Review[Tool]:
    """Return a review function for a server's tools among those of others."""

    def review(tool: Tool, change: DefinitionChange) -> tuple[Problem, ...]:
        if change.kind == "widening":
            return lint_addition(tool.ref, change.added(), others)
        return holding(lint(tool, others, alike))

    return review


def counting(seen: Iterable[Sighting[Tool]], is_accepted: IsAccepted, lint_notes: LintNotes) -> Iterator[Tool]:
    """Yield the accepted tools. A `readOnlyHint` is honoured only if a person accepted the definition."""
    for tool in (each.tool for each in seen if each.usable):
        says = (tool.annotations or {}).get("readOnlyHint") is True
        yield lint_notes.add_to(tool, reads=says and is_accepted(tool))


def notes(seen: Iterable[Sighting[Tool]]) -> list[Problem]:
    """Return notes on what is held back."""
    return [_note(each) for each in seen if not each.usable]


def _with_findings(tool: Tool, found: tuple[Problem, ...], *, reads: bool) -> Tool:
    if not found and not reads:
        return tool
    marks = replace(tool.marks, read_only=True) if reads else tool.marks
    return replace(tool, problems=(*tool.problems, *found), marks=marks)


def _note(seen: Sighting[Tool]) -> Problem:
    return Problem("tool.changed", seen.note or f"{seen.tool.ref} is held back.", "Run `toolcrib tools changes`.")
