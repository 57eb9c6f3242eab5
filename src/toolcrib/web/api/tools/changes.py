"""`/api/tools/changes`: changed upstream definitions, and the owner's decisions on them."""

from pathlib import Path
from typing import Annotated, Literal

from fastapi import Depends

from toolcrib.host import Crib
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.pins import PinKind
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import ChangeShape, JudgedShape, JudgeRequest
from toolcrib.web.api.reading import StrictRoute, owner_only
from toolcrib.web.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("tools", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("/changes", response_model=list[ChangeShape], response_model_exclude_unset=True)
    async def list_tool_changes(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the definitions that are held back, including rejected ones, each with its differences."""
        return crib.intake.changes(_place(await crib.placed(principal)))

    @router.post("/{server}/{tool:path}/accept", response_model=JudgedShape, response_model_exclude_unset=True)
    async def accept_tool(
        change: Annotated[Changing, changes], server: str, tool: str, body: JudgeRequest
    ) -> JsonObject:
        """Accept a definition after review. Its hints apply from then on, too."""
        return await _review(crib, change, _subject(server, tool, body.what), body, "accepted")

    @router.post("/{server}/{tool:path}/reject", response_model=JudgedShape, response_model_exclude_unset=True)
    async def reject_tool(
        change: Annotated[Changing, changes], server: str, tool: str, body: JudgeRequest
    ) -> JsonObject:
        """Reject a definition. The tool returns when its server offers another definition or the previous one."""
        return await _review(crib, change, _subject(server, tool, body.what), body, "rejected")

    return router


def _subject(server: str, tool: str, what: PinKind) -> ToolRef:
    """Return the subject of a path. A server's instructions have no name."""
    return ToolRef(server, "" if what == "instructions" else tool)


async def _review(
    crib: Crib, change: Changing, ref: ToolRef, body: JudgeRequest, verdict: Literal["accepted", "rejected"]
) -> JsonObject:
    principal = await crib.placed(change.principal)
    place, what = _place(principal), body.what
    chosen = body.hash or _current(crib, principal, ref, what)
    kind, decide = (
        ("tools.accept", crib.intake.accept) if verdict == "accepted" else ("tools.reject", crib.intake.reject)
    )
    reviewed: JsonObject = {"ref": str(ref) if ref.tool else ref.server, "hash": chosen}
    if what != "tool":
        reviewed["what"] = what
    await change.make(kind, reviewed, lambda: decide(place, ref, chosen, change.principal, what))
    return reviewed | {"verdict": verdict}


def _current(crib: Crib, principal: Principal, ref: ToolRef, what: PinKind) -> str:
    """Return the hash of the definition under review: the held one, or else the current one."""
    changes = crib.intake.changes(_place(principal))
    held = next((each for each in changes if (each["what"], each["server"], each["tool"]) == (what, *ref)), None)
    if held is not None:
        return str(held["hash"])
    if what != "tool":
        raise NotFound("pin.unknown", f"No changed {what} of {ref.server!r} needs review.")
    tool = crib.gate.find(principal, ref)
    if tool.kind != "upstream":
        raise NotFound("pin.unknown", f"{ref} is not a tool of an upstream server, so its definition needs no review.")
    return digest(tool.definition)


def _place(principal: Principal) -> Path | None:
    return Path(principal.cwd) if principal.cwd is not None else None
