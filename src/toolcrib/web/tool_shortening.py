"""Shortens descriptions that repeat text, for REST and the console, and lists them whole again."""

from collections.abc import Collection
from dataclasses import replace

from toolcrib.gate.costs import definition_tokens
from toolcrib.host import Crib
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef


async def shortenable(crib: Crib, names: Collection[str], cwd: str | None = None) -> list[tuple[Tool, JsonObject]]:
    """Return the tools that can be shortened, each with its public shape. `names` are servers and tools, or all.

    Raises `NotFound` for a name that does not exist.
    """
    principal = await crib.placed(replace(crib.owner(source="ide"), cwd=cwd))
    tools = crib.gate.listing(principal).tools
    known = {tool.ref.server for tool in tools} | {str(tool.ref) for tool in tools}
    for unknown in (name for name in names if name not in known):
        ref = ToolRef.parse(unknown)
        if ref is None:
            raise NotFound("server.unknown", f'Server "{unknown}" not found.')
        raise NotFound("tool.unknown", f"Tool {ref} not found.")
    forms = await crib.gate.shortened.shorter(tools)
    found: list[tuple[Tool, JsonObject]] = []
    for tool in tools:
        form, is_named = forms.get(tool.ref), not names or not {tool.ref.server, str(tool.ref)}.isdisjoint(names)
        if form is None or not is_named or crib.gate.shortened.has(tool):
            continue
        name = crib.gate.name("endpoint", tool.ref)
        saves = definition_tokens(name, tool) - definition_tokens(name, form)
        found.append((tool, {"ref": str(tool.ref), "saves": saves, **listed_shape(form)}))
    return found


def shortened(crib: Crib, names: Collection[str] = ()) -> list[ToolRef]:
    """Return the shortened tools of these servers and tools, or all."""
    refs = sorted(set(crib.gate.shortened.by_hash.values()))
    return [ref for ref in refs if not names or not {ref.server, str(ref)}.isdisjoint(names)]


def shortened_form(crib: Crib, principal: Principal, tool: Tool) -> JsonObject | None:
    """Return the texts of a tool as the principal's clients list them, if they are shortened."""
    form = next((each for each in crib.gate.listed(principal) if each.ref == tool.ref), tool)
    return None if form is tool else listed_shape(form)


def listed_shape(form: Tool) -> JsonObject:
    """Return the texts of a tool as clients list them."""
    return {"description": form.description, "inputSchema": form.input_schema}
