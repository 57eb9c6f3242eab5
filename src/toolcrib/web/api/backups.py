"""`/api/backups`: backups of the database, for the owner only."""

from typing import Annotated

from fastapi import Depends
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.reading import StrictRoute, owner_only, path_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import Shape


class BackupShape(Shape):
    """One backup; `record` is the newest audit record in it."""

    file: str
    at: str
    revision: str
    record: int
    bytes: int


class BackupRequest(Shape):
    """The absolute path of the backup; into the home if absent."""

    to: str | None = Field(None, max_length=4096)


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("backups", StrictRoute)
    owner = Depends(owner_only(crib))

    @router.get("", response_model=list[BackupShape])
    async def list_backups(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the backups in the home, newest first."""
        return [backup.to_json() for backup in await crib.backups.list()]

    @router.post("", response_model=BackupShape, status_code=201)
    async def create_backup(principal: Annotated[Principal, owner], body: BackupRequest) -> JsonObject:
        """Back up the database to this file or into the home, without stopping the crib."""
        return (await crib.backups.create(path_of(body.to) if body.to is not None else None)).to_json()

    return router
