"""Starts a conversation: initialisation, the session with its tools, its mode and its model.

Must never start a conversation in which the agent acts without asking, if it has a mode that asks.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from acp import PROTOCOL_VERSION, RequestError

from toolcrib.agents.sessions.acp.endings import refused
from toolcrib.agents.sessions.acp.recognition import SERVER
from toolcrib.agents.sessions.programs import Program
from toolcrib.agents.sessions.runtime import Brief
from toolcrib.gate.policy.coding_tools import QUESTION
from toolcrib.model.errors import CODES, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure
from toolcrib.model.version import __version__

Request = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Sends a request to the agent; raises `RequestError`."""

NOT_FOUND: Final = -32002
PLAN: Final = "plan"
_WHICH: Final = (
    f"The tools that Toolcrib issues are those of the MCP server `{SERVER}`, whatever their names begin with."
)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices an agent offers: ids of modes and models, and the config option that sets the model."""

    modes: tuple[str, ...] = ()
    mode: str | None = None
    models: tuple[str, ...] = ()
    model: str | None = None
    model_option: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A started conversation. `is_resumed` is true if an existing one was continued."""

    id: str
    choices: Choices
    is_resumed: bool = False


async def begin(request: Request, program: Program, brief: Brief, url: str, secret: str) -> Begun:
    """Initialise the agent and open a session. Raises `Unavailable`, and `RequestError` if the agent refuses."""
    initialized = await request(
        "initialize",
        {
            "protocolVersion": PROTOCOL_VERSION,
            # No files and no terminals: using ours would bypass the agent's own permission requests.
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "toolcrib", "title": "Toolcrib", "version": __version__},
        },
    )
    can = _capabilities(program.name, initialized)
    server = {
        "type": "http",
        "name": SERVER,
        "url": url,
        "headers": [{"name": "Authorization", "value": f"Bearer {secret}"}],
    }
    params: JsonObject = {"cwd": brief.cwd, "mcpServers": [server], **_extra_params(program, brief)}
    if brief.resume is None:
        return _parse_session(await request("session/new", params))
    method = _resume_method(program.name, can, is_fork=brief.fork)
    try:
        answer = await request(method, {**params, "sessionId": brief.resume})
    except RequestError as error:
        if error.code != NOT_FOUND:
            raise
        return _parse_session(await request("session/new", params))  # the agent does not have this conversation
    return _parse_session({"sessionId": brief.resume, **answer}, is_resumed=True)


def asking_mode(program: Program, choices: Choices, mode: Mode) -> str | None:
    """Return the agent's own mode to use, if it has any: plan, or the one in which it asks.

    Raises `runner.unfit` if it has modes, but not that one.
    """
    if mode == "plan" and PLAN in choices.modes:
        return PLAN
    if program.mode is None or not choices.modes:
        return None
    if program.mode not in choices.modes:
        available = ", ".join(choices.modes)
        message = f"The agent {program.name} has no mode {program.mode!r}, which would ask before it acts."
        raise Unavailable("runner.unfit", message, f"Name one of its modes in `[runners.{program.name}]`: {available}.")
    return program.mode


def explained(name: str, error: RequestError) -> ToolcribError:
    """Return the error to raise when an agent refuses to start."""
    failure: Failure = refused(name, error)
    return CODES[failure.code].raised_as(failure.code, failure.message, failure.hint)


def _capabilities(name: str, initialized: JsonObject) -> JsonObject:
    if initialized.get("protocolVersion") != PROTOCOL_VERSION:
        version = initialized.get("protocolVersion")
        raise Unavailable(
            "runner.unfit", f"The agent {name} supports version {version} of the Agent Client Protocol, not 1."
        )
    can: Json = initialized.get("agentCapabilities")
    servers: Json = can.get("mcpCapabilities") if is_object(can) else None
    if not is_object(can) or not is_object(servers) or servers.get("http") is not True:
        raise Unavailable("runner.unfit", f"The agent {name} does not support MCP servers over HTTP.")
    return can


def _resume_method(name: str, can: JsonObject, *, is_fork: bool) -> str:
    """Return the request with which this agent resumes or forks a conversation."""
    of_sessions: Json = can.get("sessionCapabilities")
    offers: JsonObject = of_sessions if is_object(of_sessions) else {}
    if is_fork and offers.get("fork") is not None:
        return "session/fork"
    if not is_fork and offers.get("resume") is not None:
        return "session/resume"
    if not is_fork and can.get("loadSession") is True:
        return "session/load"
    what = "fork a conversation" if is_fork else "resume a conversation"
    raise Unavailable("runner.cannot_resume", f"The agent {name} cannot {what}.")


def _extra_params(program: Program, brief: Brief) -> JsonObject:
    """Return extra parameters: for Claude Code's adapter, how to use its own tools."""
    if program.dialect != "claude":
        return {}
    own = [tool for tool in brief.own_tools if tool != QUESTION]
    options: JsonObject = {
        "settingSources": [],
        "strictMcpConfig": True,
        "promptSuggestions": False,
        "verbatimPrompts": True,  # otherwise `@path` would read files and `/…` run commands, bypassing the gate
        "tools": own,
        "settings": {"permissions": {"allow": [f"mcp__{SERVER}"], "ask": own, "disableAutoMode": "disable"}},
    }
    if brief.limits.turns is not None:
        options["maxTurns"] = brief.limits.turns
    if brief.limits.cost_usd is not None:
        options["maxBudgetUsd"] = brief.limits.cost_usd
    prompt: JsonObject = {"systemPrompt": {"append": brief.prompt}} if brief.prompt else {}
    return {"_meta": {"claudeCode": {"options": options}, **prompt}}


def _parse_session(answer: JsonObject, *, is_resumed: bool = False) -> Begun:
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
    """Return the ids of choices, which may be grouped."""
    flat: list[str] = []
    for entry in entries if is_array(entries) else ():
        inner: Json = entry.get("options") if is_object(entry) else None
        if is_array(inner):
            flat += _ids(inner, key)
        elif is_object(entry) and key in entry:
            flat.append(str(entry[key]))
    return tuple(flat)


def blocks(prompt: str, text: str) -> Sequence[JsonObject]:
    """Return a message as content blocks; the crib's instructions precede it in a block of their own."""
    blocks: list[JsonObject] = [{"type": "text", "text": text}]
    return (
        [{"type": "text", "text": f"<instructions>\n{prompt}\n\n{_WHICH}\n</instructions>"}, *blocks]
        if prompt
        else blocks
    )
