"""How a conversation is begun: the greeting, the session with its tools, its mode and its model.

Above: `runner`. Below: the protocol's requests, in its own words. It must never begin a conversation in which the agent
acts without asking where it could be told to ask.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from acp import PROTOCOL_VERSION, RequestError

from toolcrib.errors import CODES, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure
from toolcrib.policy.coding import QUESTION
from toolcrib.sessions.acp.endings import refused
from toolcrib.sessions.acp.recognition import SERVER
from toolcrib.sessions.programs import Program
from toolcrib.sessions.runner import Brief
from toolcrib.version import __version__

Request = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Asks the agent; raises `RequestError`."""

NOT_FOUND: Final = -32002
PLAN: Final = "plan"
_WHICH: Final = (
    f"The tools that Toolcrib issues are those of the MCP server `{SERVER}`, whatever their names begin with."
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What an agent lets one choose: modes and models by their ids, and by which option a model is set."""

    modes: tuple[str, ...] = ()
    mode: str | None = None
    models: tuple[str, ...] = ()
    model: str | None = None
    model_option: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A conversation that was begun. `is_resumed` says whether there was something to go on with."""

    id: str
    choices: Choices
    is_resumed: bool = False


async def begin(request: Request, program: Program, brief: Brief, url: str, secret: str) -> Begun:
    """Greet the agent and open a session. Raises `Unavailable`, and `RequestError` for what the agent refuses."""
    greeting = await request(
        "initialize",
        {
            "protocolVersion": PROTOCOL_VERSION,
            # No files and no terminals: what an agent did through us would be past its own questions for permission.
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "toolcrib", "title": "Toolcrib", "version": __version__},
        },
    )
    can = _capabilities(program.name, greeting)
    server = {
        "type": "http",
        "name": SERVER,
        "url": url,
        "headers": [{"name": "Authorization", "value": f"Bearer {secret}"}],
    }
    params: JsonObject = {"cwd": brief.cwd, "mcpServers": [server], **_beside(program, brief)}
    if brief.resume is None:
        return _begun(await request("session/new", params))
    method = _resuming(program.name, can, is_fork=brief.fork)
    try:
        answer = await request(method, {**params, "sessionId": brief.resume})
    except RequestError as error:
        if error.code != NOT_FOUND:
            raise
        return _begun(await request("session/new", params))  # it has kept nothing of it
    return _begun({"sessionId": brief.resume, **answer}, is_resumed=True)


def asking_mode(program: Program, choices: Choices, mode: Mode) -> str | None:
    """The mode for the agent itself, if it has any: to plan, or the one in which it asks.

    Raises `runner.unfit` if it has others, but not that one.
    """
    if mode == "plan" and PLAN in choices.modes:
        return PLAN
    if program.mode is None or not choices.modes:
        return None
    if program.mode not in choices.modes:
        there = ", ".join(choices.modes)
        message = f"The agent {program.name} has no mode {program.mode!r}, in which it asks before it acts."
        raise Unavailable("runner.unfit", message, f"Name one of its modes in `[runners.{program.name}]`: {there}.")
    return program.mode


def explained(name: str, error: RequestError) -> ToolcribError:
    """A refusal of the agent to begin, as whoever wanted to is told."""
    told: Failure = refused(name, error)
    return CODES[told.code].raised_as(told.code, told.message, told.hint)


def _capabilities(name: str, greeting: JsonObject) -> JsonObject:
    if greeting.get("protocolVersion") != PROTOCOL_VERSION:
        version = greeting.get("protocolVersion")
        raise Unavailable("runner.unfit", f"The agent {name} speaks version {version} of the protocol, not 1.")
    can: Json = greeting.get("agentCapabilities")
    servers: Json = can.get("mcpCapabilities") if is_object(can) else None
    if not is_object(can) or not is_object(servers) or servers.get("http") is not True:
        raise Unavailable("runner.unfit", f"The agent {name} cannot use tools of a server over HTTP.")
    return can


def _resuming(name: str, can: JsonObject, *, is_fork: bool) -> str:
    """The request by which this agent goes on with a conversation, or copies one."""
    of_sessions: Json = can.get("sessionCapabilities")
    offers: JsonObject = of_sessions if is_object(of_sessions) else {}
    if is_fork and offers.get("fork") is not None:
        return "session/fork"
    if not is_fork and offers.get("resume") is not None:
        return "session/resume"
    if not is_fork and can.get("loadSession") is True:
        return "session/load"
    what = "copy a conversation" if is_fork else "go on with a conversation after its process has ended"
    raise Unavailable("runner.cannot_resume", f"The agent {name} cannot {what}.")


def _beside(program: Program, brief: Brief) -> JsonObject:
    """What is said beside the protocol: to Claude Code's adapter, how its own tools are to be used."""
    if program.dialect != "claude":
        return {}
    own = [tool for tool in brief.own_tools if tool != QUESTION]
    options: JsonObject = {
        "settingSources": [],
        "strictMcpConfig": True,
        "promptSuggestions": False,
        "verbatimPrompts": True,  # a message must not read files by `@path`, nor run commands by `/…`, past the gate
        "tools": own,
        "settings": {"permissions": {"allow": [f"mcp__{SERVER}"], "ask": own, "disableAutoMode": "disable"}},
    }
    if brief.limits.turns is not None:
        options["maxTurns"] = brief.limits.turns
    if brief.limits.cost_usd is not None:
        options["maxBudgetUsd"] = brief.limits.cost_usd
    prompt: JsonObject = {"systemPrompt": {"append": brief.prompt}} if brief.prompt else {}
    return {"_meta": {"claudeCode": {"options": options}, **prompt}}


def _begun(answer: JsonObject, *, is_resumed: bool = False) -> Begun:
    modes: Json = answer.get("modes")
    models: Json = answer.get("models")
    found = Choices()
    if is_object(modes):
        found = Choices(_ids(modes.get("availableModes"), "id"), modes.get("currentModeId"))
    options: Json = answer.get("configOptions")
    for option in options if is_array(options) else ():
        if is_object(option) and option.get("category") == "model":
            values, current = _ids(option.get("options"), "value"), option.get("currentValue")
            return Begun(str(answer["sessionId"]), _with_models(found, values, current, option.get("id")), is_resumed)
    if is_object(models):
        found = _with_models(found, _ids(models.get("availableModels"), "modelId"), models.get("currentModelId"), None)
    return Begun(str(answer["sessionId"]), found, is_resumed)


def _with_models(choices: Choices, models: tuple[str, ...], current: Json, option: Json) -> Choices:
    named = str(option) if option is not None else None
    return Choices(choices.modes, choices.mode, models, str(current) if current is not None else None, named)


def _ids(entries: Json, key: str) -> tuple[str, ...]:
    """The ids of choices, which may stand in groups."""
    flat: list[str] = []
    for entry in entries if is_array(entries) else ():
        inner: Json = entry.get("options") if is_object(entry) else None
        if is_array(inner):
            flat += _ids(inner, key)
        elif is_object(entry) and key in entry:
            flat.append(str(entry[key]))
    return tuple(flat)


def blocks(prompt: str, text: str) -> Sequence[JsonObject]:
    """A message as content; what the crib has to say to the agent stands before it, in a block of its own."""
    said: list[JsonObject] = [{"type": "text", "text": text}]
    return (
        [{"type": "text", "text": f"<instructions>\n{prompt}\n\n{_WHICH}\n</instructions>"}, *said] if prompt else said
    )
