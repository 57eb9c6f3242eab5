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


def counting(seen: Sequence[Seen], is_accepted: IsAccepted, others: Mapping[str, frozenset[str]]) -> Iterator[Tool]:
    """The tools that count, one by one; `others` is what `telling_names` gives."""
    own = {each.tool.ref.tool for each in seen}
    foreign = {name: servers for name, servers in others.items() if name not in own}
    return (_judged(each.tool, is_accepted, foreign) for each in seen if each.usable)


def notes(seen: Iterable[Seen]) -> list[Problem]:
    """What is held back."""
    return [_note(each) for each in seen if not each.usable]


def _judged(tool: Tool, is_accepted: IsAccepted, others: Mapping[str, frozenset[str]]) -> Tool:
    """The tool with what a person should know of its words, and read-only if one agreed to its saying so."""
    found = lint(tool, others)
    reads = (tool.annotations or {}).get("readOnlyHint") is True and is_accepted(tool)
    if not found and not reads:
        return tool
    marks = replace(tool.marks, read_only=True) if reads else tool.marks
    return replace(tool, problems=(*tool.problems, *found), marks=marks)


def _note(seen: Seen) -> Problem:
    return Problem("tool.changed", seen.note or f"{seen.tool.ref} is held back.", "Run `toolcrib tools changes`.")
