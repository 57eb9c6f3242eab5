"""Data flows of tools: which tools return untrusted text or private data, send data out, or destroy things.

The owner sets the flows of tools with `[[flows]]` in `toolcrib.toml`, by pattern; the first matching entry decides. All
other tools get defaults from their annotations and the words of their names. Annotations of a server can only add
flows, since a server is not trusted to declare itself harmless.

Must never let an entry of the owner's file override one of the managed file.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.fields import FieldFault, Members, lines_of_tables, one_of
from toolcrib.gate.policy.patterns import names, parts
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.marks import ACTS, FLOWS, Act, Flow
from toolcrib.model.problems import Problem
from toolcrib.model.tools import CallResult, Tool, ToolRef
from toolcrib.servers.syntax.document import SyntaxProblem
from toolcrib.servers.syntax.toml import parse

Acts: TypeAlias = "Callable[[Tool, JsonObject | None], frozenset[Act]]"
NONE: Final[frozenset[Flow]] = frozenset()
_EVERYTHING: Final[frozenset[Flow]] = frozenset(FLOWS)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READ = _set(
    "get read list search fetch find query view show browse open describe lookup check retrieve load download scrape "
    "crawl extract summarize export select watch visit navigate snapshot grep glob cat head tail recall inspect"
)
_SEND = _set(
    "send post publish share reply forward invite email mail upload push submit tweet notify message comment pay "
    "transfer wire reserve book order purchase buy donate broadcast announce dispatch deploy schedule reschedule fork "
    "follow star click type fill press drag grant place connect assign merge"
)
_DESTROY = _set(
    "delete remove drop purge cancel destroy erase truncate wipe revoke kill terminate uninstall reset overwrite clear "
    "update set change modify replace unfollow unstar upsert patch activate deactivate suspend block archive "
    "disconnect unassign restore rollback restart"
)
_WRITE = _set(
    "create write append save add insert edit move rename make copy put start stop enable disable register configure"
)
_RUN = _set("run exec execute eval bash shell command terminal spawn ssh python")
_VERBS: Final = _READ | _SEND | _DESTROY | _WRITE | _RUN
_REACHES_OTHERS = _set(
    "event meeting invitation invite issue pull pr comment ticket message post gist release participant member user "
    "collaborator attendee guest webhook repository repo"
)
"""Things that others receive or gain access to when they are created or added."""
_UNTRUSTED = _set(
    "web webpage page website url http html browser fetch crawl scrape rss feed news mail email gmail outlook imap "
    "inbox message chat slack discord teams telegram whatsapp sms issue pull pr comment review discussion ticket jira "
    "zendesk linear tweet twitter reddit youtube wiki wikipedia notion confluence forum post feedback calendar event "
    "invitation transaction notification github gitlab hackernews trend trending bing google duckduckgo brave tavily "
    "exa arxiv podcast video transcript blog article"
)
_PRIVATE = _set(
    "file document doc pdf drive folder directory filesystem disk database db sql postgres sqlite mysql mongo redis "
    "table row record mail email gmail outlook imap inbox message chat slack discord teams telegram whatsapp sms "
    "calendar event contact note memory account user profile bank transaction balance iban payment invoice customer "
    "crm salesforce secret credential password env log clipboard screenshot history photo bucket storage sharepoint "
    "onedrive dropbox brain library neo4j cypher graph entity portfolio holding order margin"
)
_FILES = _set("file document doc pdf drive folder")
_PLAIN = _set("id status count version day date time current balance iban")
"""Things without text of others: the name of a server alone does not make them untrusted."""
_NAMED = _set("channel user member label contact participant")
"""Things that are listed by name. Names are text of others only if they read like a sentence."""
_SENTENCE = re.compile(r"(?:[^\W\d_]+[^\S\n]+){4}[^\W\d_]|[^\s\"',;/]{40}")
_ADDRESSES = _set("url uri link href endpoint")
_PEOPLE = _set("participant attendee guest invitee recipient to email user")
_FRONT_PAGE = re.compile(r"(?i:https?://)?(?:[a-z0-9-]{1,30}\.){1,2}[a-z]{2,12}/?")
"""The address of a site without a path, a query or a name that is long enough for data."""
_ENDS_IN_S = _set("address news teams redis status canvas access process alias bus")
_CODING: Final[dict[str, frozenset[Flow]]] = {
    "Read": frozenset({"private"}),
    "Grep": frozenset({"private"}),
    "Glob": NONE,
    "Bash": _EVERYTHING,
    "WebFetch": frozenset({"untrusted", "sends"}),
    "WebSearch": frozenset({"untrusted"}),
}


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """The flows of all tools that match a pattern, as the owner or administrator wrote them."""

    pattern: str
    flows: frozenset[Flow]

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"pattern": self.pattern, "flows": [flow for flow in FLOWS if flow in self.flows]}


def words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, without a plural s."""
    return tuple(_singular(word.lower()) for word in _WORD.findall(name))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and word not in _ENDS_IN_S else word


def default_flows(tool: Tool, *, in_account: bool = False) -> frozenset[Flow]:
    """Return the flows of a tool according to its annotations and names.

    `in_account` is whether its server acts in an account or on a machine of the user (`is_account`).
    """
    if tool.ref.server == coding_tools.SERVER:
        return _CODING.get(tool.ref.tool, NONE)
    own = words(tool.ref.tool)
    verb = next((word for word in own if word in _VERBS), None)
    acts = _acts(tool, own, verb)
    if verb in _RUN:
        return _EVERYTHING if not _PRIVATE & {*own} else frozenset({"private", "destroys"})
    if not _reads(tool, verb):
        return acts
    found = set(acts) | _returns(tool, own, in_account=in_account)
    if "untrusted" in found and _takes_address(tool):
        found.add("sends")
    return frozenset(found)


def is_account(tools: Iterable[Tool]) -> bool:
    """Return whether a server sends, destroys or runs commands, so that what its other tools read is private."""
    return any(map(_acts_in_account, tools))


def _acts_in_account(tool: Tool) -> bool:
    own = words(tool.ref.tool)
    verb = next((word for word in own if word in _VERBS), None)
    return verb in _RUN or bool(_acts(tool, own, verb))


def _acts(tool: Tool, own: Sequence[str], verb: str | None) -> frozenset[Flow]:
    found: set[Flow] = set()
    if tool.marks.destructive or verb in _DESTROY:
        found.add("destroys")
    if verb in _SEND or (verb in _WRITE and (_REACHES_OTHERS & {*own} or tool.marks.open_world)):
        found.add("sends")
    return frozenset(found)


def _reads(tool: Tool, verb: str | None) -> bool:
    return verb is None or verb in _READ or tool.marks.read_only


def _returns(tool: Tool, own: Sequence[str], *, in_account: bool) -> set[Flow]:
    found: set[Flow] = set()
    place = {*words(tool.ref.server)}
    by_place = bool(_UNTRUSTED & place) and not _PLAIN & {*own}
    is_search = own[-1:] == ("search",) and not in_account
    if tool.marks.open_world or _UNTRUSTED & {*own} or by_place or is_search or (in_account and _FILES & {*own}):
        found.add("untrusted")
    if _PRIVATE & ({*own} | place) or in_account:
        found.add("private")
    return found


def lists_names(tool: Tool) -> bool:
    """Return whether a tool returns a list of names according to its own name, such as `get_channels`."""
    own = {*words(tool.ref.tool)}
    return bool(_NAMED & own) and not (_UNTRUSTED & own) and not tool.marks.open_world


def reads_like_text(result: CallResult) -> bool:
    """Return whether a result has a sentence, or a name that is long enough to hide one."""
    texts = [str(part.get("text", "")) for part in result.content]
    if result.has_structured:
        texts.append(str(result.structured_content))
    return not result.content or any(_SENTENCE.search(text) for text in texts)


def _takes_address(tool: Tool) -> bool:
    return any(_ADDRESSES & {*words(name)} for name in tool.argument_names)


def acts_of(tool: Tool, arguments: JsonObject | None = None) -> frozenset[Act]:
    """Return whether a call sends data out or destroys things, by default.

    Without arguments, the answer is for any call. A calendar entry without participants sends nothing, and nor does
    reading the front page of a site: the address has no room for data.
    """
    found: set[Act] = {act for act in ACTS if act in default_flows(tool)}
    if "sends" in found and arguments is not None and _sends_nothing(tool, arguments):
        found.remove("sends")
    return frozenset(found)


def _sends_nothing(tool: Tool, arguments: JsonObject) -> bool:
    own = words(tool.ref.tool)
    verb = next((word for word in own if word in _VERBS), None)
    people = [name for name in tool.argument_names if _PEOPLE & {*words(name)}]
    if verb == "create" and {"event", "meeting"} & {*own} and people:
        return not any(arguments.get(name) for name in people)
    if verb not in _READ:
        return False
    given = [value for name, value in arguments.items() if value is not None and _ADDRESSES & {*words(name)}]
    others = [value for name, value in arguments.items() if not _ADDRESSES & {*words(name)}]
    return bool(given) and not any(map(_is_text, others)) and all(map(_is_front_page, given))


def _is_text(value: Json) -> bool:
    return isinstance(value, str) or is_array(value) or is_object(value)


def _is_front_page(value: Json) -> bool:
    return isinstance(value, str) and _FRONT_PAGE.fullmatch(value) is not None


class Flows:
    """The flows of all tools: the entries of the files first, then the defaults."""

    def __init__(self) -> None:
        self._entries: tuple[FlowEntry, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._accounts: dict[str, tuple[Mapping[ToolRef, Tool], bool]] = {}
        """Per server: its tools, and whether it acts in an account. The same for each of thousands of tools."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the entries."""
        self._listeners.append(listener)

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """The entries of the files, those of the managed file first."""
        return self._entries

    def set(self, entries: Iterable[FlowEntry]) -> bool:
        """Replace the entries. Returns whether they changed."""
        before, self._entries = self._entries, tuple(entries)
        for listener in self._listeners if before != self._entries else ():
            listener()
        return before != self._entries

    def lists_names(self, tool: Tool) -> bool:
        """Return whether a tool returns untrusted text only if the names that it lists read like text."""
        return self._written_flows(tool) is None and lists_names(tool)

    def of(self, tool: Tool, siblings: Mapping[ToolRef, Tool] | None = None) -> frozenset[Flow]:
        """Return the flows of a tool; `siblings` are the tools of the same server."""
        written = self._written_flows(tool)
        if written is not None:
            return written
        return default_flows(tool, in_account=siblings is not None and self._is_account(tool.ref.server, siblings))

    def _is_account(self, server: str, tools: Mapping[ToolRef, Tool]) -> bool:
        known = self._accounts.get(server)
        if known is None or known[0] is not tools:
            known = self._accounts[server] = (tools, is_account(tools.values()))
        return known[1]

    def acts(self, tool: Tool, arguments: JsonObject | None = None) -> frozenset[Act]:
        """Return whether a call sends data out or destroys things. Without arguments, for any call."""
        written = self._written_flows(tool)
        return acts_of(tool, arguments) if written is None else frozenset(act for act in ACTS if act in written)

    def _written_flows(self, tool: Tool) -> frozenset[Flow] | None:
        """Return the flows of the first entry that matches the tool under any name of its server, or None."""
        refs = (tool.ref, *(ToolRef(other.name, tool.ref.tool) for other in tool.names.trusted))
        return next((each.flows for each in self._entries if any(names(each.pattern, ref) for ref in refs)), None)


@dataclass(frozen=True, slots=True)
class FlowsRead:
    """The `[[flows]]` of a file, and the problems in them."""

    entries: tuple[FlowEntry, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_flows_file(text: str, file: str) -> FlowsRead:
    """Parse the `[[flows]]` of a TOML file. A file that is not TOML has none; the rules report that."""
    try:
        raw = parse(text).value.get("flows", [])
    except SyntaxProblem:
        return FlowsRead()
    lines = lines_of_tables(text, "flows")
    entries: list[FlowEntry] = []
    problems: list[Problem] = []
    for number, each in enumerate(raw if is_array(raw) else [raw]):
        faults: list[FieldFault] = []
        entry = _read(each, faults)
        if entry is not None and not faults:
            entries.append(entry)
            continue
        message = " ".join(fault.message for fault in faults)
        found = Problem("flow.invalid", f"These flows are ignored: {message}", file=file, line=lines(number))
        problems.append(found)
    return FlowsRead(tuple(entries), tuple(problems))


def _read(raw: Json, faults: list[FieldFault]) -> FlowEntry | None:
    if not is_object(raw):
        faults.append(FieldFault("", "Flows must be a table, written `[[flows]]`."))
        return None
    members = Members(raw, ("pattern", "flows"), faults)
    pattern = members.take("pattern", _pattern, "`server/tool` with `*` for any", needed=True)
    flows = members.take("flows", _flows, f"a list of {', '.join(FLOWS)}, or an empty list", needed=True)
    return None if pattern is None or flows is None else FlowEntry(pattern, flows)


def _pattern(value: Json) -> str | None:
    return value if isinstance(value, str) and parts(value) is not None else None


def _flows(value: Json) -> frozenset[Flow] | None:
    found: list[Flow | None] = [_FLOW(each) for each in value] if is_array(value) else [None]
    return None if None in found else frozenset(each for each in found if each is not None)


_FLOW: Callable[[Json], Flow | None] = one_of(FLOWS)
