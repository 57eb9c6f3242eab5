"""`/api/tools/cost/hide`: hides tools that were not called, and shows them again."""

from typing import Annotated

from fastapi import Depends
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Source
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import Shape
from toolcrib.web.tool_hiding import HIDDEN, HidingScope, hide, hiding_rules, show_again, unused_tools


class HideRequest(Shape):
    """A request to hide unused tools from an agent, a source, or an agent at a source."""

    agent: str | None = Field(None, min_length=1, max_length=200)
    source: Source | None = None
    server: str | None = Field(None, description="Only tools of this server.", min_length=1, max_length=200)
    undo: bool = Field(False, description="Remove the rules again; without agent and source, those of all callers.")
    dry_run: bool = False


class HiddenToolsShape(Shape):
    """The tools that were hidden or shown again, each by one deny rule."""

    reason: str = Field(description="The common reason of the rules.")
    patterns: list[str] = Field(description="The patterns of the rules, one for each tool.")
    rules: list[str] = Field(description="The ids of the rules that were added or removed; empty in a dry run.")
    saves: int = Field(description="Estimated tokens that hiding saves; 0 with `undo`.")
    dry_run: bool


def add_hiding(router: Resource, crib: Crib) -> None:
    """Add the route."""
    changes = Depends(owner_changes(crib))

    @router.post("/cost/hide", response_model=HiddenToolsShape)
    async def hide_unused_tools(change: Annotated[Changing, changes], body: HideRequest) -> JsonObject:
        """Hide tools that were not called in 30 days with deny rules, or remove these rules with `undo`."""
        scope = HidingScope(body.agent, body.source, body.server)
        shape: JsonObject = {"reason": HIDDEN, "rules": [], "saves": 0, "dryRun": body.dry_run}
        if body.undo:
            rules = hiding_rules(crib, scope)
            patterns = [rule.pattern for rule in rules]
            if rules and not body.dry_run:
                details = {**scope.to_json(), "patterns": patterns}
                await change.make("tools.unhide", details, lambda: show_again(crib, rules))
                shape["rules"] = [rule.id for rule in rules]
            return shape | {"patterns": patterns}
        tools = await unused_tools(crib, scope, change.principal.cwd)
        patterns = [str(each.ref) for each in tools]
        if tools and not body.dry_run:
            details = {**scope.to_json(), "tools": patterns}
            by = change.principal.name
            made = await change.make("tools.hide", details, lambda: hide(crib, tools, scope, by=by))
            shape["rules"], patterns = [rule.id for rule in made], [rule.pattern for rule in made]
        return shape | {"patterns": patterns, "saves": sum(each.tokens for each in tools)}
