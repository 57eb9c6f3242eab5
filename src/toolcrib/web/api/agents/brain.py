"""`/api/agents/{id}/brain`: list, add, change and delete what an agent remembers."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field

from toolcrib.agents.zoo.brain import MOST_LISTED, EntryQuery
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import EntryChanges, EntryInput, InputFields
from toolcrib.host import Crib
from toolcrib.model.agents import EntryType
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, MalformedJson, parse_strict
from toolcrib.model.principals import Principal
from toolcrib.web.api.agents.asking import check_sight
from toolcrib.web.api.agents.shapes import EntryShape, RemovedEntry
from toolcrib.web.api.reading import owner_only, principal_of

_Tags = Annotated[
    str | None, Query(description="Only entries with any of these tags, separated by commas.", max_length=2_000)
]
_From = Annotated[
    str | None, Query(alias="dateFrom", description="Only entries from this date or time on.", max_length=40)
]
_To = Annotated[str | None, Query(alias="dateTo", description="Only entries up to this date or time.", max_length=40)]
_Limit = Annotated[int, Query(description="The maximum number of results.", ge=1, le=MOST_LISTED)]


class PinRequest(InputFields):
    """Whether an entry is pinned; if absent, the pin is toggled."""

    pinned: bool | None = Field(None)


def add_brain(router: APIRouter, crib: Crib) -> None:
    """Add the brain routes."""
    caller, owner = Depends(principal_of(crib.principals)), Depends(owner_only(crib))

    @router.get("/{agent_id}/brain", response_model=list[EntryShape])
    async def list_entries(
        principal: Annotated[Principal, caller],
        agent_id: str,
        type: Annotated[EntryType | None, Query(description="Only entries of this type.")] = None,
        tags: _Tags = None,
        date_from: _From = None,
        date_to: _To = None,
        pinned: Annotated[bool | None, Query(description="Only pinned entries, or only others.")] = None,
        limit: _Limit = MOST_LISTED,
    ) -> list[JsonObject]:
        """List the entries that match all filters, newest first."""
        check_sight(principal, agent_id)
        wanted = tuple(tag.strip() for tag in (tags or "").split(",") if tag.strip())
        query = EntryQuery(type, wanted, date_from, date_to, pinned, limit)
        return [entry.to_json() for entry in await crib.zoo.brain.find(agent_id, query)]

    @router.post("/{agent_id}/brain", response_model=EntryShape, status_code=201)
    async def add_entry(principal: Annotated[Principal, owner], agent_id: str, body: EntryInput) -> JsonObject:
        """Add an entry."""
        return (await crib.zoo.brain.add(agent_id, body, source="manual")).to_json()

    @router.get("/{agent_id}/brain/{entry_id}", response_model=EntryShape)
    async def show_entry(principal: Annotated[Principal, caller], agent_id: str, entry_id: str) -> JsonObject:
        """Return one entry."""
        check_sight(principal, agent_id)
        return (await crib.zoo.brain.get(agent_id, entry_id)).to_json()

    @router.put("/{agent_id}/brain/{entry_id}", response_model=EntryShape)
    async def change_entry(
        principal: Annotated[Principal, owner], agent_id: str, entry_id: str, body: EntryChanges
    ) -> JsonObject:
        """Change the given fields of an entry."""
        return (await crib.zoo.brain.change(agent_id, entry_id, body)).to_json()

    @router.delete("/{agent_id}/brain/{entry_id}", response_model=RemovedEntry)
    async def delete_entry(principal: Annotated[Principal, owner], agent_id: str, entry_id: str) -> JsonObject:
        """Delete an entry."""
        await crib.zoo.brain.delete(agent_id, entry_id)
        return {"success": True, "entryId": entry_id}

    @router.patch(
        "/{agent_id}/brain/{entry_id}/pin",
        response_model=EntryShape,
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": PinRequest.model_json_schema()}}}},
    )
    async def pin_entry(
        request: Request, principal: Annotated[Principal, owner], agent_id: str, entry_id: str
    ) -> JsonObject:
        """Pin or unpin an entry; without a body, toggle the pin."""
        pinned = _read_pinned(await request.body())
        return (await crib.zoo.brain.pin(agent_id, entry_id, pinned)).to_json()


def _read_pinned(body: bytes) -> bool | None:
    """Parse the optional body."""
    if not body:
        return None
    try:
        return parse(PinRequest, parse_strict(body)).pinned
    except MalformedJson as error:
        raise InvalidRequest("request.malformed", f"The body is not JSON: {error}.") from error
