"""The source `agent_zoo`: its tools, one prompt per agent, the agents as resources, and their skills.

Listings come from the zoo's index and reads from its store, so a listed resource is readable while the agent exists.
Brain entries can be many, so they are not listed but reachable by a template.

Must never parse a URI of the zoo as a host name: `agents` is the first segment of a path.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl

from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.agents.zoo.check import InvalidFields
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.builtin.agent_zoo.skills import ZooSkills
from toolcrib.builtin.agent_zoo.tools import SERVER, agent_zoo_server, failed
from toolcrib.model.agents import ENTRY_TYPES, AgentSummary, InjectFormat
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolcrib.model.skills import SKILL_SCHEME
from toolcrib.model.sources import CallContext, ContentMethod, ProtocolError, RunCall
from toolcrib.model.tools import CallResult, ContentItem, ServerKind, Tool
from toolcrib.tools import PythonSource

ROOT = "agent-zoo://agents"
PROMPT = "agent_zoo_use_"
FORMATS: tuple[InjectFormat, ...] = ("compiled", "structured")
_URI = re.compile(r"agent-zoo://agents(?:/([^/?#]+)(?:(/brain)(?:/([^/?#]+))?)?)?(?:\?([^#]*))?")
_FILTERS = "{?type,tags,dateFrom,dateTo,pinned}"
_COMPLETED = 100

_FORMAT: JsonObject = {
    "name": "format",
    "description": "compiled (default): one prompt. structured: system prompt and skills separately.",
    "required": False,
}


_Items = tuple[ContentItem, ContentItem, ContentItem]


class AgentZooSource:
    """The zoo as one source of the catalog; close it after the catalog no longer uses it."""

    def __init__(self, zoo: Zoo) -> None:
        self._zoo = zoo
        self._python = PythonSource(agent_zoo_server(zoo))
        self._all = _resource(ROOT, "Agents", "All agents of the zoo.")
        self._made: dict[str, tuple[tuple[str, str], _Items]] = {}
        self._subscribed: Counter[str] = Counter()
        self._skills = ZooSkills(zoo)
        self._answers: Mapping[str, Callable[[JsonObject], Awaitable[JsonObject]]] = {
            "resources/read": self._read,
            "completion/complete": self._complete,
            "resources/subscribe": partial(self._subscribe, 1),
            "resources/unsubscribe": partial(self._subscribe, -1),
        }

    @property
    def name(self) -> str:
        """The server's name."""
        return SERVER

    @property
    def kind(self) -> ServerKind:
        """The server's kind."""
        return "builtin"

    def tools(self) -> Sequence[Tool]:
        """Return the tools, which never change."""
        return self._python.tools()

    def problems(self) -> Sequence[Problem]:
        """Return no problems."""
        return ()

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Validate and bind the arguments; invalid ones become an error result in the zoo's own format."""
        try:
            return self._python.prepare(tool, arguments, canonical)
        except InvalidRequest as error:
            wrong_format = "format" in arguments and arguments["format"] not in FORMATS
            code = "INVALID_FORMAT" if wrong_format and tool == "agent_zoo_inject" else "INVALID_ARGUMENTS"
            return partial(_refuse, failed(code, error.message))

    def prompts(self) -> Sequence[ContentItem]:
        """Return one prompt per agent."""
        known = self._zoo.known
        if len(self._made) > 2 * len(known):  # evict deleted agents
            self._made.clear()
        return [self._items(agent)[0] for agent in known]

    def resources(self) -> Sequence[ContentItem]:
        """Return the list of agents, each agent, and each brain."""
        return [self._all, *(item for agent in self._zoo.known for item in self._items(agent)[1:])]

    def _items(self, agent: AgentSummary) -> _Items:
        """Return the prompt and resources of an agent, cached until its name or description changes."""
        key = (agent.name, agent.description)
        kept = self._made.get(agent.id)
        if kept is None or kept[0] != key:
            uri = f"{ROOT}/{agent.id}"
            items = (
                _prompt_item(agent),
                _resource(uri, agent.name, agent.description),
                _resource(
                    f"{uri}/brain", f"Brain of {agent.name}", f"The brain entries of {agent.name}, newest first."
                ),
            )
            kept = self._made[agent.id] = (key, items)
        return kept[1]

    def templates(self) -> Sequence[ContentItem]:
        """Return the templates for one agent, for filtered brain entries, and for one entry."""
        return [
            _template("/{agentId}", "Agent", "One agent with all its fields."),
            _template("/{agentId}/brain" + _FILTERS, "Brain", "The brain entries of an agent, newest first."),
            _template("/{agentId}/brain/{entryId}", "Brain entry", "One entry of a brain."),
        ]

    async def skills(self) -> Sequence[ContentItem]:
        """Return the enabled skills of all agents."""
        return await self._skills.all()

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Answer a content request; raise `ProtocolError` if the method is unknown."""
        if method == "prompts/get":
            return await self._prompt(params, context.principal.cwd)
        answer = self._answers.get(method)
        if answer is None:
            raise ProtocolError(METHOD_NOT_FOUND, f"{SERVER} does not support {method}.")
        return await answer(params)

    def updated(self, event: Mapping[str, Json]) -> tuple[str, ...]:
        """Return the URIs of the resources changed by this `agent_changed` event."""
        agent = f"{ROOT}/{event['agentId']}"
        changed = {agent, f"{agent}/brain"} if event["change"] == "brain" else {ROOT, agent}
        if event["change"] in ("brain", "deleted"):
            changed |= {uri for uri in self._subscribed if uri.startswith(f"{agent}/brain")}
        return tuple(sorted(changed))

    async def aclose(self) -> None:
        """Close what the tools opened."""
        await self._python.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read(self, params: JsonObject) -> JsonObject:
        uri = params.get("uri")
        if isinstance(uri, str) and uri.startswith(SKILL_SCHEME) and (page := await self._skills.read(uri)) is not None:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": page}]}
        found = _URI.fullmatch(uri) if isinstance(uri, str) else None
        try:
            if found is None:
                raise NotFound("agent.unknown", "The URI is not a resource of the Agent Zoo.")
            content = await self._content(*found.groups())
        except NotFound as error:
            raise ProtocolError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri}) from error
        except InvalidFields as error:
            raise ProtocolError(INVALID_PARAMS, error.message, {"uri": uri}) from error
        text = dumps(content).decode()
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}

    async def _content(self, agent_id: str | None, brain: str | None, entry: str | None, query: str | None) -> Json:
        if agent_id is None:
            return {"agents": [each.to_json() | {"uri": f"{ROOT}/{each.id}"} for each in await self._zoo.list()]}
        if entry is not None:
            return (await self._zoo.brain.get(agent_id, entry)).to_json()
        if brain is None:
            return await self._zoo.whole(agent_id)
        entries = await self._zoo.brain.find(agent_id, _query(query or ""))
        return {"agentId": agent_id, "entries": [each.to_json() for each in entries]}

    async def _prompt(self, params: JsonObject, cwd: str | None) -> JsonObject:
        name, arguments = params.get("name"), params.get("arguments")
        form: Json = arguments.get("format", FORMATS[0]) if is_object(arguments) else FORMATS[0]
        if form not in FORMATS:
            raise ProtocolError(INVALID_PARAMS, f"format must be one of {', '.join(FORMATS)}.")
        agent_id = str(name).removeprefix(PROMPT)
        try:
            injected = await self._zoo.inject(agent_id, form, cwd)
        except NotFound as error:
            raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {name}") from error
        text = injected["prompt"] if form == "compiled" else dumps(injected).decode()
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": f"Use Agent: {injected['agentName']}", "messages": [message]}

    async def _complete(self, params: JsonObject) -> JsonObject:
        argument = params.get("argument")
        name, begun = (argument.get("name"), argument.get("value")) if is_object(argument) else (None, None)
        values: Sequence[str] = ()
        if name == "format":
            values = FORMATS
        elif name == "agentId":
            values = [agent.id for agent in await self._zoo.list()]
        elif name == "type":
            values = ENTRY_TYPES
        elif name == "entryId":
            values = await self._entry_ids(params.get("context"))
        fitting = [value for value in values if value.startswith(str(begun or ""))]
        more = len(fitting) > _COMPLETED
        return {"completion": {"values": fitting[:_COMPLETED], "total": len(fitting), "hasMore": more}}

    async def _entry_ids(self, context: Json) -> Sequence[str]:
        known: Json = context.get("arguments") if is_object(context) else None
        agent_id: Json = known.get("agentId") if is_object(known) else None
        if not isinstance(agent_id, str):
            return ()
        try:
            return [entry.id for entry in await self._zoo.brain.find(agent_id, EntryQuery())]
        except NotFound:
            return ()

    async def _subscribe(self, step: int, params: JsonObject) -> JsonObject:
        await self._read(params)
        self._subscribed[params["uri"]] += step
        self._subscribed = +self._subscribed
        return {}


async def _refuse(result: CallResult, _: CallContext) -> CallResult:
    return result


def _query(text: str) -> EntryQuery:
    """Return the filter in a URI's query; unknown parameters are ignored."""
    given = dict(parse_qsl(text))
    pinned = {"true": True, "false": False}.get(given.get("pinned", ""))
    tags = tuple(tag for tag in given.get("tags", "").split(",") if tag)
    return EntryQuery(given.get("type"), tags, given.get("dateFrom"), given.get("dateTo"), pinned)


def _prompt_item(agent: AgentSummary) -> ContentItem:
    name = f"{PROMPT}{agent.id}"
    definition: JsonObject = {"name": name, "title": f"Use Agent: {agent.name}", "arguments": [_FORMAT]}
    return ContentItem(SERVER, name, definition | _description(agent.description))


def _resource(uri: str, name: str, description: str) -> ContentItem:
    definition: JsonObject = {"uri": uri, "name": name, "mimeType": "application/json"}
    return ContentItem(SERVER, uri, definition | _description(description))


def _template(path: str, name: str, description: str) -> ContentItem:
    template = f"{ROOT}{path}"
    definition: JsonObject = {"uriTemplate": template, "name": name, "mimeType": "application/json"}
    return ContentItem(SERVER, template, definition | _description(description))


def _description(text: str) -> JsonObject:
    return {"description": text} if text else {}
