"""The audit record of a changed agent: its permissions before and after, and the names of all changed fields.

Prompts and skill texts are not repeated there: the agent's revisions have them.
"""

from toolcrib.model.agents import Agent
from toolcrib.model.json import JsonObject


def change_of(agent_id: str, before: Agent | None, after: Agent | None) -> JsonObject:
    """Describe a change; `before` is None for a creation, `after` for a deletion."""
    old, new = _permissions(before), _permissions(after)
    changed: JsonObject = {"id": agent_id}
    if before is not None and after is not None:
        was, will = before.to_json(), after.to_json()
        changed["fields"] = sorted(key for key in {*was, *will} if was.get(key) != will.get(key))
        same = {key for key in old if old[key] == new.get(key)}
        old, new = _without(old, same), _without(new, same)
    if before is not None:
        changed["before"] = old
    if after is not None:
        changed["after"] = new
    return changed


def _permissions(agent: Agent | None) -> JsonObject:
    """Return the fields that decide what an agent may do."""
    if agent is None:
        return {}
    return {
        "toolPermissions": None if agent.tool_permissions is None else list(agent.tool_permissions),
        "mode": agent.mode,
        "includeBrain": agent.include_brain,
        "skillTools": {skill.id: list(skill.tools) for skill in agent.skills if skill.enabled and skill.tools},
    }


def _without(shape: JsonObject, keys: set[str]) -> JsonObject:
    return {key: value for key, value in shape.items() if key not in keys}
