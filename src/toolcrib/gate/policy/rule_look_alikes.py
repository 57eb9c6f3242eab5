"""Finds rules that can be misread: patterns with odd characters, and look-alikes of tools and servers.

A rule for `files/read-file` has no effect on `files/read_file`, but the two look alike. Pure. Must never change what a
rule matches.
"""

from collections.abc import Collection, Iterable, Iterator

from toolcrib.model.look_alikes import look, looks_foreign
from toolcrib.model.policy import Rule
from toolcrib.model.problems import Problem
from toolcrib.model.text import visible
from toolcrib.model.tools import ToolRef

_GLOB = frozenset("*?[")
_HINT = "Compare the names letter by letter; `toolcrib tools list` lists the existing ones."


def look_alikes(rules: Iterable[Rule], known: Collection[ToolRef]) -> list[Problem]:
    """Return a problem for each rule whose pattern can be mistaken for another name."""
    servers = {ref.server for ref in known}
    return [
        Problem("rule.look_alike", f'Rule {rule.id}: the pattern "{visible(rule.pattern)}" {wrong}.', _HINT)
        for rule in rules
        for wrong in _wrong(rule.pattern, servers, known)
    ]


def _wrong(pattern: str, servers: Collection[str], known: Collection[ToolRef]) -> Iterator[str]:
    if visible(pattern) != pattern or looks_foreign(pattern):
        yield "has characters that are hidden or look like others"
    server, _, tool = pattern.partition("/")
    if not _is_literal(server):
        return
    yield from _twins_of(server, servers)
    if _is_literal(tool):
        yield from _twins_of(tool, [ref.tool for ref in known if ref.server == server])


def _twins_of(name: str, names: Iterable[str]) -> Iterator[str]:
    seen = look(name)
    others = sorted({other for other in names if other != name and look(other) == seen})
    if others:
        shown = ", ".join(f'"{visible(other)}"' for other in others[:3])
        yield f'names "{visible(name)}", which looks like {shown}'


def _is_literal(part: str) -> bool:
    return bool(part) and not _GLOB.intersection(part)
