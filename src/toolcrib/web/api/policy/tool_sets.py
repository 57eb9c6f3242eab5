"""`/api/policy/tool-sets`: the tools of an app or a project, as deny rules with exceptions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import owner_only, path_of
from toolcrib.web.api.shapes import Shape
from toolcrib.web.tool_sets import (
    OWN_TOOLS,
    ToolSet,
    ToolSetKind,
    ToolSetScope,
    chosen_set,
    rules_of,
    save_set,
    tool_set,
)

_Token = Annotated[str | None, Query(description="The token of an app.", max_length=200)]
_Project = Annotated[str | None, Query(description="The directory of a project.", max_length=4096)]


class ToolSetRequest(Shape):
    """A tool set to save, for a token or a project."""

    token: str | None = Field(None, description="The token of an app.", min_length=1, max_length=200)
    project: str | None = Field(None, description="The directory of a project.", min_length=1, max_length=4096)
    kind: Literal["all", "servers", "chosen"] = Field(
        description="`all`: no limit. `servers`: without most of Toolcrib's own tools. `chosen`: only `tools`."
    )
    tools: list[Annotated[str, Field(min_length=1, max_length=512)]] = Field(
        [], description="Names or patterns of tools; only with `chosen`.", max_length=2000
    )


class ToolSetShape(Shape):
    """A tool set."""

    token: str | None
    project: str | None
    kind: ToolSetKind = Field(description="`limited`: some servers are limited; those added later are not.")
    tools: list[str] = Field(description="The patterns of a set that is `chosen`.")
    limited: dict[str, list[str]] = Field(description="The limited servers of another set, with what they keep.")
    rules: list[str] = Field(description="The ids of the rules that make up the set.")


def add_tool_sets(router: APIRouter, crib: Crib) -> None:
    """Add the routes."""
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("/tool-sets", response_model=ToolSetShape)
    async def show_tool_set(
        principal: Annotated[Principal, owner], token: _Token = None, project: _Project = None
    ) -> JsonObject:
        """Return the tool set of an app's token or of a project."""
        return _shape(crib, _scope(crib, token, project))

    @router.put("/tool-sets", response_model=ToolSetShape)
    async def save_tool_set(change: Annotated[Changing, changes], body: ToolSetRequest) -> JsonObject:
        """Replace the tool set of an app's token or of a project. It applies from the next call on."""
        scope = _scope(crib, body.token, body.project)
        if body.kind == "chosen":
            wanted = chosen_set(crib, body.tools)
        elif body.tools:
            raise InvalidRequest("request.invalid", "`tools` needs `kind` to be `chosen`.")
        else:
            wanted = ToolSet() if body.kind == "all" else ToolSet(None, OWN_TOOLS)
        details = body.model_dump(by_alias=True)
        await change.make("tools.set", details, lambda: save_set(crib, scope, wanted, by=change.principal.name))
        return _shape(crib, scope)


def _scope(crib: Crib, token: str | None, project: str | None) -> ToolSetScope:
    if (token is None) == (project is None):
        raise InvalidRequest("request.invalid", "Name either `token` or `project`.")
    if project is not None:
        return ToolSetScope("project", str(path_of(project)))
    if token is None or crib.tokens.named(token) is None:
        raise NotFound("token.unknown", f"Token {token!r} not found.")
    return ToolSetScope("app", token)


def _shape(crib: Crib, scope: ToolSetScope) -> JsonObject:
    found = tool_set(crib, scope)
    return {
        "token": scope.name if scope.kind == "app" else None,
        "project": scope.name if scope.kind == "project" else None,
        "kind": found.kind,
        "tools": list(found.tools or ()),
        "limited": {server: list(kept) for server, kept in found.limited.items()},
        "rules": [rule.id for rule in rules_of(crib, scope)],
    }
