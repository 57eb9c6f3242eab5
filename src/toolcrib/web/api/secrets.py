"""`/api/secrets`: plaintext secrets in the files of apps, and the secrets that the crib stores, for the owner only.

No response contains a value; a request contains one only to store it.
"""

from typing import Annotated, Literal

from fastapi import Depends
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.servers import Scope
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import RemovedShape
from toolcrib.web.api.reading import StrictRoute, cwd_of, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.servers.shapes import EditShape
from toolcrib.web.api.shapes import Shape


class PlaintextSecretShape(Shape):
    """A secret that a definition contains in plaintext."""

    name: str = Field(description="The name it would be stored under; equal values have equal names.")
    server: str
    client: str
    scope: Scope
    file: str
    line: int | None
    field: str = Field(description="Where in the definition, such as `env.GITHUB_TOKEN`.")
    value: str = Field(description="The masked value.")


class MovedSecretShape(PlaintextSecretShape):
    """A moved secret."""

    how: Literal["keyring", "variable", "behind"] = Field(
        description="`keyring`: our file refers to the keyring. `variable`: the app refers to a variable that has the "
        "value. `behind`: the server moved behind the crib."
    )


class SkippedSecretShape(PlaintextSecretShape):
    """A secret that was not moved."""

    reason: str


class StoredSecretShape(Shape):
    """A secret that the crib stores."""

    name: str
    place: Literal["keyring", "file"] = Field(description="The system's keyring, or an encrypted file in the home.")
    project: str | None = Field(description="The only project that may use it; null for the user's definitions.")
    created: str
    changed: str | None
    used_by: list[str]


class SecretMoveRequest(Shape):
    """A request to move secrets."""

    names: list[str] = Field([], description="Names of secrets or servers; empty for all.", max_length=200)
    dry_run: bool = False


class SecretMoveShape(Shape):
    """The result of a move, or of a dry run."""

    moved: list[MovedSecretShape]
    skipped: list[SkippedSecretShape]
    connected: list[str] = Field(description="Apps that are connected to this crib.")
    changes: list[EditShape]
    dry_run: bool


class SecretUndoRequest(Shape):
    """A request to undo the last move."""

    dry_run: bool = False


class SecretUndoneShape(Shape):
    """The result of undoing a move, or of a dry run."""

    changes: list[EditShape]
    disconnected: list[str]
    removed: list[str] = Field(description="Stored secrets that were removed again.")
    dry_run: bool


class SecretValueRequest(Shape):
    """A new value of a secret."""

    value: str = Field(min_length=1, max_length=65536, repr=False)
    project: bool = Field(False, description="Store a new secret for the project in `cwd` only.")


class SecretSetShape(Shape):
    """The result of storing a secret."""

    name: str
    place: Literal["keyring", "file"]
    project: str | None
    restarted: list[str] = Field(description="The servers that were restarted, because they use it.")


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("secrets", StrictRoute)
    secrets = crib.definition_secrets
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[PlaintextSecretShape])
    async def list_secrets(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the plaintext secrets in the files of all apps, masked."""
        return [each.to_json() for each in await secrets.plaintext(cwd_of(crib, principal))]

    @router.get("/stored", response_model=list[StoredSecretShape])
    async def list_stored_secrets(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List the names of the stored secrets, and the servers that use them."""
        return [each.to_json() for each in await secrets.stored(cwd_of(crib, principal))]

    @router.post("/move", response_model=SecretMoveShape)
    async def move_secrets(change: Annotated[Changing, changes], body: SecretMoveRequest) -> JsonObject:
        """Move plaintext secrets into the keyring, and write references into the files."""
        cwd = cwd_of(crib, change.principal)

        async def work() -> JsonObject:
            return (await secrets.move(body.names, cwd, dry_run=body.dry_run)).to_json()

        return await work() if body.dry_run else await change.make("secrets.move", {"names": body.names}, work)

    @router.post("/undo", response_model=SecretUndoneShape)
    async def undo_secret_move(change: Annotated[Changing, changes], body: SecretUndoRequest) -> JsonObject:
        """Undo the last move: every file is restored byte for byte."""

        async def work() -> JsonObject:
            return (await secrets.undo(dry_run=body.dry_run)).to_json()

        return await work() if body.dry_run else await change.make("secrets.undo", {}, work)

    @router.put("/{name}", response_model=SecretSetShape)
    async def set_secret(change: Annotated[Changing, changes], name: str, body: SecretValueRequest) -> JsonObject:
        """Store or replace a secret, and restart the servers that use it."""
        project = cwd_of(crib, change.principal) if body.project else None
        record, restarted = await change.make(
            "secrets.set",
            {"name": name, "project": str(project) if project is not None else None},
            lambda: secrets.set(name, body.value, project, in_project=body.project),
        )
        return {"name": name, "place": record.place, "project": record.project, "restarted": list(restarted)}

    @router.delete("/{name}", response_model=RemovedShape)
    async def remove_secret(change: Annotated[Changing, changes], name: str) -> JsonObject:
        """Remove a stored secret that no definition refers to."""
        cwd = cwd_of(crib, change.principal)
        await change.make("secrets.remove", {"name": name}, lambda: secrets.remove(name, cwd))
        return {"id": name}

    return router
