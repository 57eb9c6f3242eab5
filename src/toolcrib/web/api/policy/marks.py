"""`/api/policy/marks`, `/flows` and `/presets`: what conversations have read, what tools do, and sets of rules."""

from typing import Annotated

from fastapi import APIRouter, Depends

from toolcrib.gate.policy.rule_presets import find_rule_preset
from toolcrib.host import Crib
from toolcrib.host.reach import preset_shapes
from toolcrib.model.errors import Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.marks import FLOWS
from toolcrib.model.principals import Principal
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import MarkedConversationShape, RulePresetShape, ToolFlowsShape
from toolcrib.web.api.reading import owner_only


def add_marks(router: APIRouter, crib: Crib) -> None:
    """Add the routes."""
    owner = Depends(owner_only(crib))
    changes = Depends(owner_changes(crib))

    @router.get("/marks", response_model=list[MarkedConversationShape])
    async def list_marks(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the conversations that have read untrusted text or private data, with the calls."""
        held = crib.gate.marks.all()
        return [{"conversation": name, "marks": held[name].to_json()} for name in sorted(held)]

    @router.delete("/marks/{conversation:path}", response_model=MarkedConversationShape)
    async def clear_marks(change: Annotated[Changing, changes], conversation: str) -> JsonObject:
        """Remove the marks of a conversation, for one that starts anew. Only a person can."""
        if not crib.principals.is_person(change.principal):
            raise Denied("policy.denied", "Only a person can remove marks.")
        gone = {"conversation": conversation}
        held = await change.make("marks.clear", gone, lambda: crib.gate.marks.clear(conversation))
        return {**gone, "marks": held.to_json()}

    @router.get("/flows", response_model=ToolFlowsShape)
    async def list_flows(principal: Annotated[Principal, owner]) -> JsonObject:
        """List the flows of tools: whether they return untrusted text or private data, send data out or destroy."""
        flows, snapshot = crib.permissions.flows, crib.catalog.at(principal.cwd)
        found = {
            str(tool.ref): flows.of(tool, part.tools)
            for part in snapshot.parts.values()
            for tool in part.tools.values()
        }
        tools = [{"pattern": ref, "flows": [each for each in FLOWS if each in found[ref]]} for ref in sorted(found)]
        return {
            "entries": [entry.to_json() for entry in flows.entries],
            "tools": [each for each in tools if each["flows"]],
        }

    @router.get("/presets", response_model=list[RulePresetShape], response_model_exclude_unset=True)
    async def list_presets(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the presets of rules, whether they are on, and for which callers one that is off is suggested."""
        return await preset_shapes(crib)

    @router.put("/presets/{preset_id}", response_model=RulePresetShape, response_model_exclude_unset=True)
    async def switch_preset_on(change: Annotated[Changing, changes], preset_id: str) -> JsonObject:
        """Switch a preset on. Its rules apply from the next call on."""
        return await _switch(change, preset_id, on=True)

    @router.delete("/presets/{preset_id}", response_model=RulePresetShape, response_model_exclude_unset=True)
    async def switch_preset_off(change: Annotated[Changing, changes], preset_id: str) -> JsonObject:
        """Switch a preset off."""
        return await _switch(change, preset_id, on=False)

    async def _switch(change: Changing, id: str, *, on: bool) -> JsonObject:
        preset = find_rule_preset(id)
        await change.make(
            "rules.preset",
            {"id": preset.id, "on": on},
            lambda: crib.permissions.switch_preset(preset, on=on, by=change.principal.name),
        )
        return preset.to_json(is_on=on)
