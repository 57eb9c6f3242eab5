"""Tool sets: which tools an app or a project has, as visible deny rules with exceptions.

A set is open or closed. A closed one names its tools (`deny *` except these), so tools that are added later are not
part of it. An open one only limits some servers (`deny server/*` except some of its tools). Apps that are newly
connected get an open set without most of Toolcrib's own tools.

Must never filter tools itself: a set holds because the gate applies its rules like any other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from toolcrib.gate.policy.coding_tools import SERVER as CODING_TOOLS
from toolcrib.gate.policy.patterns import literal_pattern, names, parts
from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.policy import Binding, Rule
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.servers.apps.apps import token_name
from toolcrib.servers.apps.connectable import connectable

ToolSetKind = Literal["all", "servers", "limited", "chosen"]
"""`all`: no limit. `servers`: without most of Toolcrib's own tools. `limited`: another open set. `chosen`: closed."""
OWN_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {"toolcrib": ("toolcrib/ping",), "crew": ()}
"""The tools that a newly connected app keeps of each limited built-in server. `agent_zoo` is not limited."""
_SOURCES: Final = ("cli", "api", "ide", "scheduler", "agent")
"""The sources that the set of a project limits: the console shows every tool."""
_MOST: Final = 2_000


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The patterns of a closed set, or for an open one the limited servers with the patterns they keep."""

    tools: tuple[str, ...] | None = None
    limited: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def kind(self) -> ToolSetKind:
        """How the set is made."""
        if self.tools is not None:
            return "chosen"
        return "all" if not self.limited else "servers" if dict(self.limited) == dict(OWN_TOOLS) else "limited"

    def has(self, ref: ToolRef) -> bool:
        """Return whether a tool is in the set."""
        kept = self.limited.get(ref.server) if self.tools is None else self.tools
        return kept is None or any(names(pattern, ref) for pattern in kept)

    def closed(self, tools: Iterable[Tool]) -> "ToolSet":
        """Return a closed set of the same tools. Whole servers stay whole, unless they have privileged tools."""
        by_server: dict[str, list[Tool]] = {}
        for tool in tools:
            by_server.setdefault(tool.ref.server, []).append(tool)
        found: list[str] = []
        for server, offered in by_server.items():
            kept = [tool for tool in offered if self.has(tool.ref) and not tool.marks.privileged]
            found += [_whole(server)] if len(kept) == len(offered) else [literal_pattern(each.ref) for each in kept]
        return ToolSet(tuple(found))

    def opened(self, tools: Iterable[Tool]) -> "ToolSet":
        """Return an open set of the same tools: servers that are added later are part of it."""
        by_server: dict[str, list[ToolRef]] = {}
        for tool in tools:
            by_server.setdefault(tool.ref.server, []).append(tool.ref)
        limited = {
            server: tuple(literal_pattern(ref) for ref in refs if self.has(ref))
            for server, refs in by_server.items()
            if not all(map(self.has, refs))
        }
        return ToolSet(None, limited)

    def switched(self, server: str, tool: str | None, on: bool, known: Iterable[ToolRef]) -> "ToolSet":
        """Return the set with a tool, or a whole server, switched on or off."""
        refs = sorted(known)
        mine = [ref for ref in refs if ref.server == server]
        is_target = [tool is None or ref.tool == tool for ref in mine]
        wanted = [ref for ref, hit in zip(mine, is_target, strict=True) if (on if hit else self.has(ref))]
        patterns = (_whole(server),) if tool is None and on else tuple(map(literal_pattern, wanted))
        if self.tools is not None:
            others = tuple(each for pattern in self.tools for each in _without_server(pattern, server, refs))
            return ToolSet(tuple(dict.fromkeys((*others, *patterns))))
        limited = {key: kept for key, kept in self.limited.items() if key != server}
        if len(wanted) < len(mine) or (tool is None and not on):
            limited[server] = patterns
        return replace(self, limited=limited)


@dataclass(frozen=True, slots=True)
class ToolSetScope:
    """The token of an app, or a project, that a set belongs to."""

    kind: Literal["app", "project"]
    name: str

    @property
    def label(self) -> str:
        """The name for people."""
        return self.name.removeprefix("connect-") if self.kind == "app" else self.name

    @property
    def prefix(self) -> str:
        """The prefix of the ids of the rules."""
        return f"tools-{digest([self.kind, self.name])[:8]}-"

    def where(self, excepted: tuple[str, ...]) -> JsonObject:
        """Return the part of a rule that names the callers and the exceptions."""
        if self.kind == "app":
            return {"except": list(excepted)} if excepted else {}
        return {
            "projects": [self.name],
            "sources": list(_SOURCES),
            "except": list(dict.fromkeys((*excepted, _whole(CODING_TOOLS)))),
        }


def app_scope(client: str, agent: str | None) -> ToolSetScope:
    """Return the scope of an app that is, or will be, connected."""
    return ToolSetScope("app", token_name(connectable(client), agent))


def rules_of(crib: Crib, scope: ToolSetScope) -> list[Rule]:
    """Return the rules of a set."""
    return [rule for rule in crib.permissions.list() if rule.id.startswith(scope.prefix) and rule.origin.file is None]


def tool_set(crib: Crib, scope: ToolSetScope) -> ToolSet:
    """Return the set that is in force."""
    limited: dict[str, tuple[str, ...]] = {}
    for rule in rules_of(crib, scope):
        kept = tuple(each for each in rule.where.excepted if each != _whole(CODING_TOOLS))
        if rule.pattern == "*":
            return ToolSet(kept)
        limited[rule.pattern.removesuffix("/*")] = kept
    return ToolSet(None, limited)


def default_set(crib: Crib, agent: str | None) -> ToolSet:
    """Return the set of an app that is newly connected. The permissions of an agent already choose its tools."""
    granted = crib.zoo.granted(agent) if agent is not None else None
    has_own = granted is not None and granted[0] is not None
    return ToolSet() if has_own else ToolSet(None, OWN_TOOLS)


def chosen_set(crib: Crib, texts: Iterable[str]) -> ToolSet:
    """Return the closed set of these patterns or names of tools. Raises `request.invalid`."""
    found: list[str] = []
    for text in texts:
        named = crib.permissions.named(text)
        pattern = literal_pattern(named) if named is not None else text if parts(text) is not None else None
        if pattern is None or len(found) == _MOST:
            message = f"{text!r} is not a tool." if pattern is None else f"A set has at most {_MOST} patterns."
            raise InvalidRequest("request.invalid", message, "Write `server/tool` or `server/*`.")
        found.append(pattern)
    return ToolSet(tuple(dict.fromkeys(found)))


async def save_set(crib: Crib, scope: ToolSetScope, wanted: ToolSet, *, by: str) -> None:
    """Replace the rules of a set. New limits apply before old ones end. Raises `token.unknown`."""
    raw = _raw_rules(crib, scope, wanted)
    before = {rule.id: rule for rule in rules_of(crib, scope)}
    for id, members in raw.items():
        if id in before:
            await crib.permissions.change(id, {"pattern": members["pattern"], "where": members.get("where")})
        else:
            await crib.permissions.remember(await crib.permissions.draft(members, by=by, id=id))
    for id in before.keys() - raw.keys():
        await crib.permissions.remove(id)


def _raw_rules(crib: Crib, scope: ToolSetScope, wanted: ToolSet) -> dict[str, JsonObject]:
    """Return the rules of a set by id."""
    limits = (
        {"*": wanted.tools} if wanted.tools is not None else {_whole(key): kept for key, kept in wanted.limited.items()}
    )
    common: JsonObject = {"effect": "deny", "reason": f"It is not in the tool set of {scope.label}."}
    if limits and scope.kind == "app":
        token = crib.tokens.named(scope.name)
        if token is None:
            raise NotFound("token.unknown", f"Token {scope.name!r} not found.")
        common["principal"] = Binding("token", token.source, token.agent, token.name).to_json()
    raw: dict[str, JsonObject] = {}
    for pattern, kept in limits.items():
        where = scope.where(kept)
        id = f"{scope.prefix}{'all' if pattern == '*' else pattern.removesuffix('/*')}"
        raw[id] = common | {"pattern": pattern} | ({"where": where} if where else {})
    return raw


def _whole(server: str) -> str:
    return literal_pattern(ToolRef(server, "")) + "*"


def _without_server(pattern: str, server: str, known: Iterable[ToolRef]) -> list[str]:
    """Return patterns for the same tools, apart from those of one server."""
    globs = parts(pattern)
    if globs is None or not names(f"{globs.server}/*", ToolRef(server, "x")):
        return [pattern]
    if globs.server == literal_pattern(ToolRef(server, "")).removesuffix("/"):
        return []
    return [literal_pattern(ref) for ref in known if ref.server != server and names(pattern, ref)]
