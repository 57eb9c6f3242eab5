"""What a client asks about permissions: rules and why, approvals, tokens, changed definitions.

Above: `Client.permissions`. Below: `wire`.
"""

from collections.abc import Mapping

from toolcrib.client.wire import Param, Wire, path_to
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

_RULES = "/api/policy/rules"
_APPROVALS = "/api/approvals"
_TOKENS = "/api/tokens"


class PermissionsClient:
    """The part of one asker's client that is about what is allowed."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def rules(self) -> list[JsonObject]:
        """All rules."""
        return await self._ask("GET", _RULES)

    async def problems(self) -> list[JsonObject]:
        """What is wrong in the files that hold rules."""
        return await self._ask("GET", "/api/policy/problems")

    async def add_rule(self, body: JsonObject) -> JsonObject:
        """Add a rule."""
        return await self._ask("POST", _RULES, body=body)

    async def remove_rule(self, id: str) -> JsonObject:
        """Remove a rule; gives what it said."""
        return await self._ask("DELETE", path_to(_RULES, id))

    async def explain(self, tool: str | None, **asked: Param) -> JsonObject:
        """Why that asker sees the tool or not, and what a call of it would come to; or why a recorded call did."""
        return await self._ask("GET", "/api/policy/explain", {"tool": tool, **asked})

    async def simulate(self, body: JsonObject) -> JsonObject:
        """What recorded calls would have come to under other rules, however long that takes."""
        return await self._ask("POST", "/api/policy/simulate", body=body, patient=True)

    async def approvals(self, *, status: str | None = None, session: str | None = None) -> list[JsonObject]:
        """Questions to a person, the newest first."""
        return await self._ask("GET", _APPROVALS, {"status": status, "session": session})

    async def approval(self, id: str) -> JsonObject:
        """One question."""
        return await self._ask("GET", path_to(_APPROVALS, id))

    async def answer(self, id: str, body: JsonObject) -> JsonObject:
        """Answer a question."""
        return await self._ask("POST", path_to(_APPROVALS, id), body=body)

    async def answer_agent(self, id: str, answers: Mapping[str, str | list[str]]) -> JsonObject:
        """Answer what an agent asks, by the text of each question."""
        return await self._ask("POST", f"{path_to(_APPROVALS, id)}/answers", body={"answers": dict(answers)})

    async def tokens(self) -> list[JsonObject]:
        """All named tokens."""
        return await self._ask("GET", _TOKENS)

    async def create_token(self, body: JsonObject) -> JsonObject:
        """Make a token; its secret is in this answer and never in another."""
        return await self._ask("POST", _TOKENS, body=body)

    async def revoke_token(self, name: str) -> JsonObject:
        """End a token."""
        return await self._ask("DELETE", path_to(_TOKENS, name))

    async def changes(self) -> list[JsonObject]:
        """Definitions of tools that changed and are held back."""
        return await self._ask("GET", "/api/tools/changes")

    async def judge(self, ref: ToolRef, verdict: str, hash: str | None) -> JsonObject:
        """Accept or reject a definition: the held one of this hash, else the one that counts now."""
        return await self._ask("POST", f"{path_to('/api/tools', *ref)}/{verdict}", body={"hash": hash})
