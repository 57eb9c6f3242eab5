"""Every call of Claude Code's own tools is decided here, before it runs, by the desk; nothing else of it decides.

The hook is asked first, in all modes and for sub-agents too, and a hook that fails blocks. What asks a second time
(Claude Code does so in `plan`) is told what was decided. The crib's own tools pass: their calls come to `servers`.

Above: `runner`. Below: the desk and `calls`. It must never let a tool run that the desk did not permit.
"""

import logging
from collections.abc import Collection
from functools import partial

from claude_agent_sdk import (
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from claude_agent_sdk.types import HookEvent

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.tools import CallResult
from toolcrib.policy.coding import QUESTION
from toolcrib.sessions.claude.calls import Calls
from toolcrib.sessions.claude.mapping import OWN_NAMES, Outcome
from toolcrib.sessions.claude.servers import LONGEST_CALL
from toolcrib.sessions.runner import Desk

logger = logging.getLogger(__name__)


class Hooks:
    """The decisions of one conversation."""

    def __init__(self, offered: Collection[str], desk: Desk, calls: Calls) -> None:
        """`offered` are the names by which the model calls the crib's tools."""
        self._offered = offered
        self._desk = desk
        self._calls = calls
        self._allowed: dict[str, JsonObject | None] = {}
        self._permitted: set[str] = set()

    def matchers(self) -> dict[HookEvent, list[HookMatcher]]:
        """The hooks: before every tool, and after those of Claude Code itself."""
        seconds = LONGEST_CALL / 1000
        after = [HookMatcher(matcher="^(?!mcp__).*$", hooks=[self._after], timeout=seconds)]
        return {
            "PreToolUse": [HookMatcher(hooks=[self._before], timeout=seconds, on_failure="block")],
            "PostToolUse": after,
            "PostToolUseFailure": after,
        }

    async def confirm(self, name: str, arguments: JsonObject, context: ToolPermissionContext) -> PermissionResult:
        """What Claude Code asks a second time."""
        if context.tool_use_id in self._allowed:
            return PermissionResultAllow(updated_input=self._allowed[context.tool_use_id])
        return PermissionResultDeny(message="This was not permitted.")

    async def settle(self) -> None:
        """The turn is over: what was permitted and did not report its end has ended with it."""
        self._allowed.clear()
        while self._permitted:
            await self._desk.ended(self._permitted.pop(), is_error=True)

    async def _before(self, data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Whether a tool may run."""
        given: JsonObject = dict(data)
        name: str = given["tool_name"]
        arguments: JsonObject = given["tool_input"]
        if name in self._offered:
            return self._allow(tool_use_id, None)
        if name.startswith("mcp__"):
            return _denied("This tool is none of this session's.")
        try:
            decide = partial(self._ask if name == QUESTION else self._permit, OWN_NAMES.get(name, name), arguments)
            decision = await self._calls.make(tool_use_id, name, arguments, decide, given.get("agent_id"))
        except Exception:  # boundary: the words of a failure in here are not for models
            logger.exception("The call of %s in a session could not be decided.", name)
            return _denied("The call could not be decided inside Toolcrib; its log says why.")
        return decision or _denied("The call was given up.")

    async def _permit(self, tool: str, arguments: JsonObject, tool_call: str) -> HookJSONOutput:
        permit = await self._desk.permit(tool, arguments, tool_call)
        if not permit.allowed:
            self._calls.keep(tool_call, Outcome(0.0, CallResult.error(permit.reason)))
            return _denied(permit.reason)
        self._permitted.add(tool_call)
        return self._allow(tool_call, permit.arguments)

    async def _ask(self, tool: str, arguments: JsonObject, tool_call: str) -> HookJSONOutput:
        """The agent's questions; Claude Code takes the answers from the arguments of its tool."""
        asked: Json = arguments.get("questions")
        questions: list[JsonObject] = [each for each in asked if is_object(each)] if is_array(asked) else []
        answers = await self._desk.ask(questions, tool_call)
        if answers is None:
            return _denied("Nobody answers. Go on as well as you can without, or say what you need to know.")
        return self._allow(tool_call, {**arguments, "answers": dict(answers)})

    async def _after(self, data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """A tool has ended."""
        self._allowed.pop(tool_use_id or "", None)
        if tool_use_id is not None and tool_use_id in self._permitted:
            self._permitted.discard(tool_use_id)
            given: JsonObject = dict(data)
            self._calls.keep(tool_use_id, Outcome(float(given.get("duration_ms") or 0.0)))
            await self._desk.ended(tool_use_id, is_error=given["hook_event_name"] == "PostToolUseFailure")
        return {}

    def _allow(self, tool_call: str | None, arguments: JsonObject | None) -> HookJSONOutput:
        """Yes, with exactly these arguments."""
        if tool_call is not None:
            self._allowed[tool_call] = arguments
        if arguments is None:
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "updatedInput": arguments,
            }
        }


def _denied(reason: str) -> HookJSONOutput:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }
