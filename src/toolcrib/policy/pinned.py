"""An upstream server as far as a person agreed to it: what is held back is not there, hints count where accepted.

Above: `host` puts these into the catalog in place of the servers themselves. Below: `pins`, `lint`. It must never offer
a definition that `pins` did not see.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from toolcrib.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import CallContext, ContentMethod, ContentSource, RunCall
from toolcrib.model.tools import ContentItem, ServerKind, Tool
from toolcrib.policy.lint import lint
from toolcrib.policy.pins import Seen

IsAccepted = Callable[[Tool], bool]


class PinnedSource:
    """One server, with the tools of it that count."""

    kind: ServerKind = "upstream"

    def __init__(self, source: ContentSource, tools: Iterable[Tool], problems: Iterable[Problem]) -> None:
        """`tools` are what `counting` gives; `problems`, such as `notes` gives, stand beside those of the server."""
        self.name = source.name
        self._source = source
        self._tools = {tool.ref.tool: tool for tool in tools}
        self._notes = tuple(problems)

    def tools(self) -> Sequence[Tool]:
        """The tools whose definitions count."""
        return tuple(self._tools.values())

    def problems(self) -> Sequence[Problem]:
        """What is wrong with the server, and what is held back of it."""
        return (*self._source.problems(), *self._notes)

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Bind the arguments, for a tool that counts."""
        if tool not in self._tools:
            raise NotFound("tool.unknown", f"Server `{self.name}` has no tool `{tool}`.")
        return self._source.prepare(tool, arguments, canonical)

    def prompts(self) -> Sequence[ContentItem]:
        """Its prompts."""
        return self._source.prompts()

    def resources(self) -> Sequence[ContentItem]:
        """Its resources."""
        return self._source.resources()

    def templates(self) -> Sequence[ContentItem]:
        """Its templates of resources."""
        return self._source.templates()

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Ask the server for content."""
        return await self._source.request(method, params, context)


class Told:
    """What people are told of a server's tools: found once for as long as a tool is the same among the same others.

    `others` is what `telling_names` gives, `before` what people were told when the server was looked at last.
    """

    def __init__(
        self, server: str, seen: Iterable[Seen], others: Mapping[str, frozenset[str]], before: "Told | None" = None
    ) -> None:
        own, alone = {each.tool.ref.tool for each in seen}, frozenset((server,))
        self._others = {name: having for name, having in others.items() if name not in own and having != alone}
        self._before = before._found if before is not None and before._others == self._others else {}
        self._found: dict[str, tuple[Tool, bool, Tool]] = {}

    def of(self, tool: Tool, *, reads: bool) -> Tool:
        """The tool with what a person should know of its words, and read-only if that counts."""
        known = self._before.get(tool.ref.tool)
        if known is None or known[0] is not tool or known[1] is not reads:
            known = (tool, reads, _judged(tool, lint(tool, self._others), reads))
        self._found[tool.ref.tool] = known
        return known[2]


def counting(seen: Iterable[Seen], is_accepted: IsAccepted, told: Told) -> Iterator[Tool]:
    """The tools that count, one by one; read-only are those which say so where a person agreed to that."""
    for tool in (each.tool for each in seen if each.usable):
        says = (tool.annotations or {}).get("readOnlyHint") is True
        yield told.of(tool, reads=says and is_accepted(tool))


def notes(seen: Iterable[Seen]) -> list[Problem]:
    """What is held back."""
    return [_note(each) for each in seen if not each.usable]


def _judged(tool: Tool, found: tuple[Problem, ...], reads: bool) -> Tool:
    if not found and not reads:
        return tool
    marks = replace(tool.marks, read_only=True) if reads else tool.marks
    return replace(tool, problems=(*tool.problems, *found), marks=marks)


def _note(seen: Seen) -> Problem:
    return Problem("tool.changed", seen.note or f"{seen.tool.ref} is held back.", "Run `toolcrib tools changes`.")
