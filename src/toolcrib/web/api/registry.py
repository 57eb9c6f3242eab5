"""`/api/registry`: the MCP registry. Searching contacts the configured registry, so it is for the owner only."""

from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.servers.registry.registry import PlanRequest
from toolcrib.servers.registry.registry_api import LATEST
from toolcrib.web.api.reading import StrictRoute, cwd_of, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.servers.shapes import NAME_LIMIT, ChangedServer, QuestionShape, SandboxShape
from toolcrib.web.api.shapes import ProblemShape, Shape

_Version = Annotated[str, Query(description="The version, or `latest`.", max_length=255)]


class InputShape(Shape):
    """A value that the user can set."""

    name: str
    kind: Literal["argument", "variable", "header", "value"]
    description: str
    required: bool
    secret: bool
    repeated: bool
    choices: list[str]
    default: str = ""


class OptionShape(Shape):
    """One way to run a published server."""

    id: str = Field(description="`remote` or the type of the package, numbered if there are several.")
    kind: str
    identifier: str
    version: str
    transport: str
    inputs: list[InputShape]
    sha256: str = ""


class PublishedShape(Shape):
    """A server in the registry."""

    name: str
    title: str
    description: str
    version: str
    status: str
    publisher: str = Field(description="The account or domain that the namespace of the name belongs to.")
    options: list[OptionShape]
    repository: str = ""
    website: str = ""
    published_at: str = ""
    updated_at: str = ""


class PlanBody(Shape):
    """A published server, how to run it, and values for its inputs."""

    name: str = Field(max_length=NAME_LIMIT)
    version: str = Field(LATEST, max_length=255)
    option: str | None = Field(None, max_length=NAME_LIMIT, description="If absent, the first that can be run.")
    local_name: str | None = Field(None, max_length=NAME_LIMIT, description="The name in our own file.")
    values: dict[str, list[str]] = Field({}, description="Values by the name of the input.")

    def plan(self) -> PlanRequest:
        """Return the request."""
        return PlanRequest(self.name, self.version, self.option, self.local_name, self.values)


class InstallBody(PlanBody):
    """A published server to add to our own file."""

    digest: str | None = Field(None, max_length=64, description="The digest of the plan that was reviewed.")
    scope: Literal["user", "project"] = "user"
    disabled: bool = False


class PlanShape(Shape):
    """What installing would add, and everything to review before."""

    name: str
    registry: str = Field(description="The URL of the registry, or the path of the snapshot.")
    server: PublishedShape
    option: OptionShape
    definition: JsonObject
    question: QuestionShape
    sandbox: SandboxShape
    digest: str = Field(description="Covers what the publisher decides; send it to install exactly that.")
    findings: list[ProblemShape] = Field(description="What the lint found in the published texts.")
    missing: list[str] = Field(description="Required inputs without a value; environment variables replace them.")


class InstalledShape(Shape):
    """An installed server, and what was reviewed."""

    plan: PlanShape
    server: ChangedServer


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("registry", StrictRoute)
    owner = Depends(owner_only(crib))

    @router.get("", response_model=list[PublishedShape], response_model_exclude_unset=True)
    async def search_registry(
        principal: Annotated[Principal, owner],
        q: Annotated[str, Query(description="Words, best match first.", max_length=500)] = "",
        limit: Annotated[int, Query(ge=1, le=100, description="The most matches.")] = 20,
    ) -> list[JsonObject]:
        """Search the configured MCP registry."""
        return [server.to_json() for server in await crib.registry.search(q, limit)]

    @router.post("/plan", response_model=PlanShape, response_model_exclude_unset=True)
    async def plan_install(principal: Annotated[Principal, owner], body: PlanBody) -> JsonObject:
        """Return what installing a published server would add. Downloads and verifies a bundle; starts nothing."""
        return (await crib.registry.plan(body.plan())).to_json()

    @router.post("/install", response_model=InstalledShape, response_model_exclude_unset=True, status_code=201)
    async def install_server(principal: Annotated[Principal, owner], body: InstallBody) -> JsonObject:
        """Add a published server to our file, or to the project's. It is trusted, because the owner adds it."""
        cwd = cwd_of(crib, principal)
        plan, done = await crib.registry.install(
            body.plan(), shown=body.digest, scope=body.scope, cwd=cwd, enabled=not body.disabled
        )
        found = await crib.servers.find(plan.name, cwd, file=done.file)
        status = crib.upstreams.status(found).to_json()
        return {"plan": plan.to_json(), "server": status | {"change": done.to_json()}}

    @router.get("/{name:path}", response_model=PublishedShape, response_model_exclude_unset=True)
    async def show_published_server(
        principal: Annotated[Principal, owner], name: str, version: _Version = LATEST
    ) -> JsonObject:
        """Return a published server with the ways to run it."""
        return (await crib.registry.find(name, version)).to_json()

    return router
