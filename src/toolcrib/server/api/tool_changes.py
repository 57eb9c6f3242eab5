"""`/api/tools/changes`: definitions of upstream tools that differ from what counts, and a person's word on them."""

from pathlib import Path
from typing import Annotated, Literal

from fastapi import Depends

from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.policy_shapes import ChangeShape, JudgedShape, JudgeRequest
from toolcrib.server.api.reading import StrictRoute, owner_only
from toolcrib.server.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("tools", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("/changes", response_model=list[ChangeShape], response_model_exclude_unset=True)
    async def list_tool_changes(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """The definitions that are held back, rejected ones too, each with what differs."""
        return crib.intake.changes(_place(await crib.placed(principal)))

    @router.post("/{server}/{tool:path}/accept", response_model=JudgedShape)
    async def accept_tool(
        change: Annotated[Changing, changes], server: str, tool: str, body: JudgeRequest
    ) -> JsonObject:
        """Let a definition count that a person has looked at; its hints count from then on, too."""
        return await _judge(crib, change, ToolRef(server, tool), body.hash, "accepted")

    @router.post("/{server}/{tool:path}/reject", response_model=JudgedShape)
    async def reject_tool(
        change: Annotated[Changing, changes], server: str, tool: str, body: JudgeRequest
    ) -> JsonObject:
        """Keep a definition out; the tool is back when its server offers another one, or what it did before."""
        return await _judge(crib, change, ToolRef(server, tool), body.hash, "rejected")

    return router


async def _judge(
    crib: Crib, change: Changing, ref: ToolRef, hash: str | None, verdict: Literal["accepted", "rejected"]
) -> JsonObject:
    asker = await crib.placed(change.principal)
    place = _place(asker)
    chosen = hash or _current(crib, asker, ref)
    kind, decide = (
        ("tools.accept", crib.intake.accept) if verdict == "accepted" else ("tools.reject", crib.intake.reject)
    )
    judged: JsonObject = {"ref": str(ref), "hash": chosen}
    await change.make(kind, judged, lambda: decide(place, ref, chosen, change.principal))
    return judged | {"verdict": verdict}


def _current(crib: Crib, principal: Principal, ref: ToolRef) -> str:
    """The definition that a person would be shown now: the held one, else the one that counts."""
    held = next((each for each in crib.intake.changes(_place(principal)) if each["ref"] == str(ref)), None)
    if held is not None:
        return str(held["hash"])
    tool = crib.gate.find(principal, ref)
    if tool.kind != "upstream":
        raise NotFound("pin.unknown", f"{ref} is no tool of an upstream server, so it needs nobody's word.")
    return digest(tool.definition)


def _place(principal: Principal) -> Path | None:
    return Path(principal.cwd) if principal.cwd is not None else None
