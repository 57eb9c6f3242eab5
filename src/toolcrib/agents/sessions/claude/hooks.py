"""Decides on every call of Claude Code's own tools before it runs, through the host.

The `PreToolUse` hook runs first, in all modes and for sub-agents too, and a failing hook blocks. If Claude Code asks
again (it does so in `plan`), it gets the same decision. The crib's tools pass: their calls arrive in `servers`.

Must never let a tool run that the host did not permit.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import cast

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

from toolcrib.agents.sessions.claude.calls import ClaudeCalls
from toolcrib.agents.sessions.claude.mapping import OWN_NAMES, ClaudeOutcome
from toolcrib.agents.sessions.claude.servers import LONGEST_CALL
from toolcrib.agents.sessions.runtime import Result, SessionHost
from toolcrib.gate.policy.coding_tools import QUESTION, with_absolute_path
from toolcrib.model.approvals import edited_note
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.tools import CallResult

logger = logging.getLogger(__name__)


class ClaudeHooks:
    """The decisions of one conversation."""

    def __init__(self, offered: Collection[str], host: SessionHost, calls: ClaudeCalls, cwd: str) -> None:
        """`offered` are the model's names for the crib's tools; `cwd` is the session's directory."""
        self._offered = offered
        self._cwd = cwd
        self._host = host
        self._calls = calls
        self._allowed: dict[str, JsonObject | None] = {}
        self._permitted: set[str] = set()
        self._edited: dict[str, JsonObject] = {}
        self.on_decided: Callable[[str | None], None] = lambda _: None
        """Called with every call of Claude Code's own tools that is decided here."""

    def matchers(self) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks: before every tool, and after Claude Code's own tools."""
        seconds = LONGEST_CALL / 1000
        after = [HookMatcher(matcher="^(?!mcp__).*$", hooks=[self._after], timeout=seconds)]
        return {
            "PreToolUse": [HookMatcher(hooks=[self._before], timeout=seconds, on_failure="block")],
            "PostToolUse": after,
            "PostToolUseFailure": after,
        }

    async def confirm(self, name: str, arguments: JsonObject, context: ToolPermissionContext) -> PermissionResult:
        """Answer Claude Code's second request with the decision already made."""
        if context.tool_use_id in self._allowed:
            return PermissionResultAllow(updated_input=self._allowed[context.tool_use_id])
        return PermissionResultDeny(message="The call was denied.")

    async def settle(self) -> None:
        """End the turn: report permitted calls without a reported end as failed."""
        self._allowed.clear()
        self._edited.clear()
        while self._permitted:
            await self._host.ended(self._permitted.pop(), is_error=True)

    async def _before(self, data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Decide whether a tool may run."""
        given: JsonObject = dict(data)
        name: str = given["tool_name"]
        arguments: JsonObject = given["tool_input"]
        if name in self._offered:
            return self._allow(tool_use_id, None)
        if name.startswith("mcp__"):
            return _denial("This tool is not available in this session.")
        self.on_decided(tool_use_id)
        tool = OWN_NAMES.get(name, name)
        directory: str = given.get("cwd") or self._cwd
        try:
            resolved = arguments if directory == self._cwd else with_absolute_path(tool, arguments, directory)
            decide = partial(self._ask if name == QUESTION else self._permit, tool, resolved)
            decision = await self._calls.make(tool_use_id, name, arguments, decide, given.get("agent_id"))
        except Exception:  # boundary: internal errors must not reach the model
            logger.exception("Could not decide the call of %s in a session.", name)
            return _denial("Toolcrib could not decide the call. See its log.")
        return decision or _denial("The call was cancelled.")

    async def _permit(self, tool: str, arguments: JsonObject, tool_call: str) -> HookJSONOutput:
        permit = await self._host.permit(tool, arguments, tool_call)
        if not permit.allowed:
            shown = permit.instead or Result(CallResult.error(permit.reason), 0.0)
            self._calls.keep(tool_call, ClaudeOutcome(shown.duration_ms, shown.result))
            return _denial(permit.reason)
        self._permitted.add(tool_call)
        if permit.arguments != arguments:
            self._edited[tool_call] = permit.arguments
        return self._allow(tool_call, permit.arguments)

    async def _ask(self, tool: str, arguments: JsonObject, tool_call: str) -> HookJSONOutput:
        """Ask the agent's questions; Claude Code reads the answers from its tool's arguments."""
        asked: Json = arguments.get("questions")
        questions: list[JsonObject] = [each for each in asked if is_object(each)] if is_array(asked) else []
        answers = await self._host.ask(questions, tool_call)
        if answers is None:
            return _denial("No answer arrived in time. Continue without it, or state what you need to know.")
        return self._allow(tool_call, {**arguments, "answers": dict(answers)})

    async def _after(self, data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Report the end of a tool."""
        self._allowed.pop(tool_use_id or "", None)
        if tool_use_id is not None and tool_use_id in self._permitted:
            self._permitted.discard(tool_use_id)
            given: JsonObject = dict(data)
            self._calls.keep(tool_use_id, ClaudeOutcome(float(given.get("duration_ms") or 0.0)))
            await self._host.ended(tool_use_id, is_error=given["hook_event_name"] == "PostToolUseFailure")
        edited = self._edited.pop(tool_use_id or "", None)
        return {} if edited is None else _note_for_model(data["hook_event_name"], edited)

    def _allow(self, tool_call: str | None, arguments: JsonObject | None) -> HookJSONOutput:
        """Allow the call with exactly these arguments."""
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


def _note_for_model(event: str, edited: JsonObject) -> HookJSONOutput:
    """Return a note for the model on the arguments that ran instead of its own."""
    note = edited_note(dumps(edited).decode())
    return cast(HookJSONOutput, {"hookSpecificOutput": {"hookEventName": event, "additionalContext": note}})


def _denial(reason: str) -> HookJSONOutput:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }
