"""The client's methods for permissions: rules, explanations, approvals, tokens and changed definitions."""

from collections.abc import Mapping

from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.wire import Param, Wire, path_to

_RULES = "/api/policy/rules"
_APPROVALS = "/api/approvals"
_TOKENS = "/api/tokens"


class PermissionsClient:
    """Reads and changes permissions."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def rules(self) -> list[JsonObject]:
        """Return all rules."""
        return await self._ask("GET", _RULES)

    async def problems(self) -> list[JsonObject]:
        """Return problems of the files with rules."""
        return await self._ask("GET", "/api/policy/problems")

    async def check(self) -> list[JsonObject]:
        """Return rules that are too broad, never decide or conflict."""
        return await self._ask("GET", "/api/policy/check", patient=True)

    async def reach(self, pattern: str, source: str | None = None, mode: str | None = None) -> list[JsonObject]:
        """Return what every principal can do with the tools that match a pattern."""
        asked: dict[str, Param] = {"pattern": pattern, "sessionSource": source, "sessionMode": mode}
        return await self._ask("GET", "/api/policy/reach", asked, patient=True)

    async def suggestions(self, agent: str | None, days: int) -> list[JsonObject]:
        """Return the smallest tool permissions that cover what agents used. Waits without a timeout."""
        return await self._ask("GET", "/api/policy/suggestions", {"agent": agent, "days": days}, patient=True)

    async def change_rule(self, id: str, body: JsonObject) -> JsonObject:
        """Change the given fields of a rule."""
        return await self._ask("PATCH", path_to(_RULES, id), body=body)

    async def add_rule(self, body: JsonObject) -> JsonObject:
        """Add a rule."""
        return await self._ask("POST", _RULES, body=body)

    async def remove_rule(self, id: str) -> JsonObject:
        """Remove a rule and return it."""
        return await self._ask("DELETE", path_to(_RULES, id))

    async def explain(self, tool: str | None, **asked: Param) -> JsonObject:
        """Explain the decision for a tool, or for a recorded call."""
        return await self._ask("GET", "/api/policy/explain", {"tool": tool, **asked})

    async def marks(self) -> list[JsonObject]:
        """Return the marked conversations."""
        return await self._ask("GET", "/api/policy/marks")

    async def clear_marks(self, conversation: str) -> JsonObject:
        """Remove the marks of a conversation and return them."""
        return await self._ask("DELETE", path_to("/api/policy/marks", conversation))

    async def flows(self) -> JsonObject:
        """Return the flows of tools."""
        return await self._ask("GET", "/api/policy/flows")

    async def presets(self) -> list[JsonObject]:
        """Return the presets of rules."""
        return await self._ask("GET", "/api/policy/presets")

    async def switch_preset(self, id: str, *, on: bool) -> JsonObject:
        """Switch a preset of rules on or off."""
        return await self._ask("PUT" if on else "DELETE", path_to("/api/policy/presets", id))

    async def simulate(self, body: JsonObject) -> JsonObject:
        """Simulate recorded calls under other rules. Waits without a timeout."""
        return await self._ask("POST", "/api/policy/simulate", body=body, patient=True)

    async def approvals(self, *, status: str | None = None, session: str | None = None) -> list[JsonObject]:
        """Return the approvals, newest first."""
        return await self._ask("GET", _APPROVALS, {"status": status, "session": session})

    async def approval(self, id: str) -> JsonObject:
        """Return one approval."""
        return await self._ask("GET", path_to(_APPROVALS, id))

    async def answer(self, id: str, body: JsonObject) -> JsonObject:
        """Answer an approval."""
        return await self._ask("POST", path_to(_APPROVALS, id), body=body)

    async def link(self, id: str) -> JsonObject:
        """Return a one-time link that answers an approval."""
        return await self._ask("POST", f"{path_to(_APPROVALS, id)}/link")

    async def answer_agent(self, id: str, answers: Mapping[str, str | list[str]]) -> JsonObject:
        """Answer an agent's question, by the text of each part."""
        return await self._ask("POST", f"{path_to(_APPROVALS, id)}/answers", body={"answers": dict(answers)})

    async def tokens(self) -> list[JsonObject]:
        """Return all named tokens."""
        return await self._ask("GET", _TOKENS)

    async def create_token(self, body: JsonObject) -> JsonObject:
        """Create a token. Only this response contains its secret."""
        return await self._ask("POST", _TOKENS, body=body)

    async def revoke_token(self, name: str) -> JsonObject:
        """Revoke a token."""
        return await self._ask("DELETE", path_to(_TOKENS, name))

    async def changes(self) -> list[JsonObject]:
        """Return the changed definitions that are held back."""
        return await self._ask("GET", "/api/tools/changes")

    async def judge(self, ref: ToolRef, verdict: str, hash: str | None, what: str = "tool") -> JsonObject:
        """Accept or reject a definition: the held one with this hash, or else the current one.

        `what` is `tool`, `prompt`, `resource`, `template` or `instructions`.
        """
        path = path_to("/api/tools", ref.server, ref.tool or what)
        return await self._ask("POST", f"{path}/{verdict}", body={"hash": hash, "what": what})
