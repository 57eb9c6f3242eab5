"""Connects apps for REST and the console: the entry in the app's file, and the tool set of its token."""

from dataclasses import replace

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.web.tool_costs import AppTools, best_offer, listing_of, offers_of
from toolcrib.web.tool_sets import ToolSet, app_scope, chosen_set, default_set, save_set, tool_set


async def connect_app(
    crib: Crib,
    asked: AppConnectRequest,
    tools: AppTools | None,
    chosen: tuple[str, ...] = (),
    *,
    by: str,
    move: bool = False,
    anyway: bool = False,
    dry_run: bool = False,
) -> JsonObject:
    """Connect an app. A new one without `tools` gets what suits it, and a project's file the project's agent.

    Raises like `Apps.connect` and `chosen_set`.
    """
    if asked.scope == "project" and asked.agent is None and asked.cwd is not None:
        asked = replace(asked, agent=crib.permissions.default_agent(asked.cwd))
    wanted = chosen_set(crib, chosen) if chosen else None
    done = await crib.clients.connect(_with_listing(crib, asked, tools), move=move, anyway=anyway, dry_run=dry_run)
    is_new = done.change.changed and not done.reasons
    if not dry_run and asked.scope == "user":
        await _choose(crib, asked, tools, wanted, is_new=is_new, by=by)
    listed = await listing_of(crib, asked.client, asked.agent, done.tools if done.names_tools else None)
    if dry_run and listed == "all" and (tools == "chosen" or (is_new and tools is None)):
        listed = "chosen"
    return done.to_json() | {"tools": listed, "offers": offers_of(crib, asked.client, asked.agent, done.type)}


async def link_app(
    crib: Crib, asked: AppConnectRequest, tools: AppTools | None, *, by: str, dry_run: bool = False
) -> JsonObject:
    """Create a link that makes an app install this crib. Its token gets the tool set of a new app."""
    is_new = crib.tokens.named(app_scope(asked.client, asked.agent).name) is None
    made = await crib.clients.link(_with_listing(crib, asked, tools), dry_run=dry_run)
    if not dry_run:
        await _choose(crib, asked, tools, None, is_new=is_new, by=by)
    return made.to_json()


async def disconnect_app(crib: Crib, asked: AppConnectRequest, *, by: str, dry_run: bool = False) -> JsonObject:
    """Restore an app's file, revoke its token and remove its tool set. Raises like `Apps.undo`."""
    done = await crib.clients.undo(asked, dry_run=dry_run)
    if not dry_run and asked.scope == "user":
        await save_set(crib, app_scope(asked.client, asked.agent), ToolSet(), by=by)
    return done.to_json()


def _with_listing(crib: Crib, asked: AppConnectRequest, tools: AppTools | None) -> AppConnectRequest:
    """Return the request with the way of listing tools that the app's address names."""
    best = best_offer(crib, asked.client, asked.agent)
    return replace(asked, tools="all" if tools == "chosen" else tools, tools_if_new=best)


async def _choose(
    crib: Crib, asked: AppConnectRequest, tools: AppTools | None, wanted: ToolSet | None, *, is_new: bool, by: str
) -> None:
    """Save the tool set that was asked for, or that a new app gets. Otherwise it stays as it is."""
    scope = app_scope(asked.client, asked.agent)
    if crib.tokens.named(scope.name) is None:
        return
    if wanted is None and tools == "all":
        wanted = ToolSet()
    elif wanted is None and (is_new or (tools == "chosen" and tool_set(crib, scope).kind == "all")):
        wanted = default_set(crib, asked.agent)
    if wanted is not None:
        await save_set(crib, scope, wanted, by=by)
