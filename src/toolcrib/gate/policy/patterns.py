"""Patterns over `server/tool`: case-sensitive globs, anchored at both ends, matched part by part.

The text before the first slash is a glob for the server, the rest one for the tool: `*` never spans both, and `*` alone
matches every tool. `?` and `[…]` work as in a shell. Other names that people write (the name a model sees, the bare
name of a built-in tool) are translated once, when a rule is written, by a lookup in the names passed in. They are never
parsed.

Must never let an invalid pattern match anything.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from toolcrib.model.tools import ToolRef

Matcher: TypeAlias = Callable[[str], object]
LONGEST = 512
_MOST_SERVERS = 10_000
"""Maximum number of servers whose patterns are cached."""
_SPECIAL = re.compile(r"[*?\[]")


@lru_cache(maxsize=4096)
def glob(text: str) -> Matcher:
    """Return a function that tests whether a whole text matches this glob.

    Globs with stars only are matched by plain search, which is ten times faster to prepare than an expression.
    """
    if _SPECIAL.search(text) is None:
        return text.__eq__
    if "?" in text or "[" in text:
        return re.compile(translate(text)).match
    first, *middle, last = text.split("*")
    if not middle and not (first and last):
        return (lambda value: value.endswith(last)) if last else (lambda value: value.startswith(first))
    shortest = len(first) + len(last)

    def fits(value: str) -> bool:
        end = len(value) - len(last)
        if len(value) < shortest or not value.startswith(first) or not value.endswith(last):
            return False
        at = len(first)
        for piece in middle:
            at = value.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return fits


def literal_pattern(ref: ToolRef) -> str:
    """Return the pattern that matches this tool and no other."""
    return "/".join(_SPECIAL.sub(lambda special: f"[{special[0]}]", part) for part in ref)


class Parts(NamedTuple):
    """The globs of a pattern for server and tool."""

    server: str
    tool: str


def parts(pattern: str) -> Parts | None:
    """Return the two globs of a pattern, or None if it is invalid."""
    server, slash, tool = pattern.partition("/")
    if not slash and pattern and not pattern.strip("*"):
        return Parts("*", "*")
    return Parts(server, tool) if slash and server and tool else None


def names(pattern: str, ref: ToolRef) -> bool:
    """Return whether a pattern matches a tool."""
    globs = parts(pattern)
    return globs is not None and bool(glob(globs.server)(ref.server) and glob(globs.tool)(ref.tool))


class _Pattern(NamedTuple):
    """A valid pattern.

    `server` is a literal name unless `fits_server` is set, and `tool` one unless `fits_tool` is. All matching tools
    begin with `prefix`.
    """

    number: int
    server: str
    fits_server: Matcher | None
    tool: str
    fits_tool: Matcher | None
    prefix: str


class _Tools:
    """Patterns indexed by the tools they match on one server, so that few are tried per tool."""

    __slots__ = ("_begin", "_exact", "_lengths", "_prefixed")

    def __init__(self, patterns: Iterable[_Pattern]) -> None:
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._prefixed: defaultdict[str, list[tuple[int, Matcher]]] = defaultdict(list)
        for each in patterns:
            if each.fits_tool is None:
                self._exact[each.tool].append(each.number)
            else:
                self._prefixed[each.prefix].append((each.number, each.fits_tool))
        self._lengths = sorted({len(prefix) for prefix in self._prefixed})
        self._begin = frozenset(prefix[:1] for prefix in self._prefixed)

    def find(self, tool: str) -> list[int]:
        """Return the numbers of the patterns that match this tool."""
        exact = self._exact.get(tool)
        found = [*exact] if exact is not None else []
        if tool[:1] not in self._begin and "" not in self._begin:
            return found
        for length in self._lengths:
            if length > len(tool):
                break
            if (begin_alike := self._prefixed.get(tool[:length])) is not None:
                found += [number for number, fits in begin_alike if fits(tool)]
        return found


class PatternIndex:
    """Numbered patterns, indexed so that those matching a tool are found without trying all."""

    __slots__ = ("_all", "_by_server", "_everywhere", "_patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._arrange([found for at, each in enumerate(patterns) if (found := _pattern(at, each)) is not None])

    def _arrange(self, patterns: list[_Pattern]) -> None:
        self._all = patterns
        self._patterns = [each for each in patterns if each.server != "*"]
        self._everywhere = _Tools(each for each in patterns if each.server == "*")
        self._by_server: dict[str, _Tools] = {}

    def only(self, kept: Container[int]) -> "PatternIndex":
        """Return an index of some of these patterns under the same numbers, without parsing them again."""
        some = PatternIndex(())
        some._arrange([each for each in self._all if each.number in kept])
        return some

    def find(self, ref: ToolRef) -> list[int]:
        """Return the numbers of the patterns that match this tool, sorted."""
        server, tool = ref
        found = self._everywhere.find(tool)
        if self._patterns:
            found += (self._by_server.get(server) or self._of(server)).find(tool)
        found.sort()
        return found

    def _of(self, server: str) -> _Tools:
        """Return the patterns for a server, indexed on first use."""
        if len(self._by_server) >= _MOST_SERVERS:
            self._by_server.clear()
        tools = self._by_server[server] = _Tools([each for each in self._patterns if _is_about(each, server)])
        return tools


def _is_about(pattern: _Pattern, server: str) -> bool:
    return pattern.server == server if pattern.fits_server is None else bool(pattern.fits_server(server))


def _pattern(number: int, text: str) -> _Pattern | None:
    globs = parts(text)
    if globs is None:
        return None
    server, tool = globs
    return _Pattern(number, server, _matcher(server), tool, _matcher(tool), _SPECIAL.split(tool, 1)[0])


def _matcher(text: str) -> Matcher | None:
    """Return the matcher of a glob, or None for a literal name."""
    return None if _SPECIAL.search(text) is None else glob(text)


@dataclass(frozen=True, slots=True)
class Names:
    """Names that people may write instead of `server/tool`, for tools and for whole servers.

    For example `mcp__github__search` → `github/search`, `Bash` → `claude_code/Bash`, and for servers `mcp__github` →
    `github`.
    """

    tools: Mapping[str, ToolRef] = field(default_factory=dict[str, ToolRef])
    servers: Mapping[str, str] = field(default_factory=dict[str, str])


def bare_names(refs: Iterable[ToolRef]) -> dict[str, ToolRef]:
    """Return the tools by their bare names. A name that two tools share is omitted."""
    found: dict[str, ToolRef] = {}
    twice: set[str] = set()
    for ref in refs:
        if found.setdefault(ref.tool, ref) != ref:
            twice.add(ref.tool)
    return {name: ref for name, ref in found.items() if name not in twice}


def resolve_pattern(text: str, known: Names) -> str | None:
    """Return the pattern that a person means by this text, or None if it is unknown."""
    text = text.strip()
    if len(text) > LONGEST:
        return None
    if (ref := known.tools.get(text)) is not None:
        return literal_pattern(ref)
    if (server := known.servers.get(text.removesuffix("__*"))) is not None:
        return _SPECIAL.sub(lambda special: f"[{special[0]}]", server) + "/*"
    return text if parts(text) is not None else None
