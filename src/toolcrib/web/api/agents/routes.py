"""`/api/agents`: the agents of the zoo. Lists that are not agents are under `-/`, which is not a valid agent id.

Every principal may read, limited to its own agent if it is bound to one. Only the owner may make changes. Every
response about an agent has its version as `ETag`, and `If-Match` refuses a change of any other version.
"""

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Response

from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.agents.zoo.difference import difference
from toolcrib.agents.zoo.importing import take
from toolcrib.agents.zoo.input import AgentChanges, AgentInput, SkillChanges
from toolcrib.agents.zoo.library import CATEGORIES, LIBRARY
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.agents.zoo.transfer import Form, write
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.host import Crib
from toolcrib.model.agents import InjectFormat
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.agents.asking import FieldsRoute, IfMatch, author, check_sight, sees, version_of
from toolcrib.web.api.agents.brain import add_brain
from toolcrib.web.api.agents.shapes import (
    AgentExport,
    AgentFields,
    AgentImport,
    AgentImportAnswer,
    AgentShape,
    AgentSummaryShape,
    InjectShape,
    LibrarySkill,
    RemovedAgent,
    RevisionDetails,
    RevisionShape,
)
from toolcrib.web.api.reading import owner_only, principal_of
from toolcrib.web.api.resource import Resource

_Format = Annotated[InjectFormat, Query(description="`compiled` for one prompt, `structured` for its parts.")]
_Form = Annotated[
    Form, Query(alias="format", description="An AgentZoo file, a Claude Code sub-agent, or one file per skill.")
]
_Template = Annotated[str | None, Query(description="The agent or template to copy.", max_length=50)]
_Against = Annotated[int | None, Query(description="The version to compare with; the previous one by default.", ge=0)]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("agents", FieldsRoute)
    _add_lists(router, crib)
    _add_moving(router, crib)
    _add_agents(router, crib)
    _add_revisions(router, crib)
    add_brain(router, crib)
    return router


def _add_lists(router: APIRouter, crib: Crib) -> None:
    caller = Depends(principal_of(crib.principals))

    @router.get("", response_model=list[AgentSummaryShape])
    async def list_agents(principal: Annotated[Principal, caller]) -> list[JsonObject]:
        """List all agents by id."""
        return [each.to_json() for each in await crib.zoo.list() if sees(principal, each.id)]

    @router.get("/-/templates", response_model=list[AgentFields], response_model_exclude_unset=True)
    async def list_agent_templates(principal: Annotated[Principal, caller]) -> list[JsonObject]:
        """List the starter agents. Each can be cloned, even after it was deleted."""
        return [agent.to_json() for agent in STARTERS]

    @router.get("/-/skills", response_model=list[LibrarySkill], response_model_exclude_unset=True)
    async def list_library_skills(principal: Annotated[Principal, caller]) -> list[JsonObject]:
        """List the skills of the library."""
        categories = {category.id: category.to_json() for category in CATEGORIES}
        return [skill.to_json() | {"category": categories[skill.category_id]} for skill in LIBRARY]


def _add_moving(router: APIRouter, crib: Crib) -> None:
    caller, owner = Depends(principal_of(crib.principals)), Depends(owner_only(crib))

    @router.post("/-/import", response_model=AgentImportAnswer, response_model_exclude_unset=True)
    async def import_agents(principal: Annotated[Principal, owner], body: AgentImport) -> JsonObject:
        """Import agents and skills of other apps: sub-agents, `SKILL.md` or AgentZoo's file."""
        files = [(file.name, file.text) for file in body.files]
        done = await take(crib.zoo, files, into=body.agent_id, dry_run=body.dry_run, by=author(principal))
        return done.to_json()

    @router.get("/{agent_id}/export", response_model=AgentExport, response_model_exclude_unset=True)
    async def export_agent(principal: Annotated[Principal, caller], agent_id: str, form: _Form = "json") -> JsonObject:
        """Export an agent as files of another app."""
        check_sight(principal, agent_id)
        stored = await crib.zoo.get(agent_id)
        entries = await crib.zoo.brain.find(agent_id, EntryQuery()) if form == "json" else ()
        return write(stored.agent, entries, form).to_json()

    @router.get("/{agent_id}/inject", response_model=InjectShape, response_model_exclude_unset=True)
    async def inject_agent(
        principal: Annotated[Principal, caller], agent_id: str, format: _Format = "compiled"
    ) -> JsonObject:
        """Return what a chat needs to become this agent."""
        check_sight(principal, agent_id)
        return await crib.zoo.inject(agent_id, format, (await crib.placed(principal)).cwd)

    @router.post("/{agent_id}/clone", response_model=AgentShape, response_model_exclude_unset=True, status_code=201)
    async def clone_agent(
        response: Response, principal: Annotated[Principal, owner], agent_id: str, body: AgentChanges
    ) -> JsonObject:
        """Clone an agent with the given fields changed, without its brain."""
        stored = await crib.zoo.clone(agent_id, body, by=author(principal))
        return await _agent_json(crib.zoo, stored.agent.id, response)


def _add_agents(router: APIRouter, crib: Crib) -> None:
    caller, owner = Depends(principal_of(crib.principals)), Depends(owner_only(crib))

    @router.post("", response_model=AgentShape, response_model_exclude_unset=True, status_code=201)
    async def create_agent(
        response: Response, principal: Annotated[Principal, owner], body: AgentInput, template: _Template = None
    ) -> JsonObject:
        """Create an agent; with a template, clone it and change the given fields."""
        if template is not None:
            stored = await crib.zoo.clone(template, body, by=author(principal))
        else:
            stored = await crib.zoo.create(body, by=author(principal))
        return await _agent_json(crib.zoo, stored.agent.id, response)

    @router.get("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def show_agent(response: Response, principal: Annotated[Principal, caller], agent_id: str) -> JsonObject:
        """Return one agent with the newest entries of its brain and the token cost of its prompt."""
        check_sight(principal, agent_id)
        return await _agent_json(crib.zoo, agent_id, response)

    @router.put("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def change_agent(
        response: Response,
        principal: Annotated[Principal, owner],
        agent_id: str,
        body: AgentChanges,
        if_match: IfMatch = None,
    ) -> JsonObject:
        """Change the given fields of an agent."""
        await crib.zoo.update(agent_id, body, version=version_of(if_match), by=author(principal))
        return await _agent_json(crib.zoo, agent_id, response)

    @router.patch("/{agent_id}/skills/{skill_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def change_skill(
        response: Response,
        principal: Annotated[Principal, owner],
        agent_id: str,
        skill_id: str,
        body: SkillChanges,
        if_match: IfMatch = None,
    ) -> JsonObject:
        """Change the given fields of one skill. Enabling it also enables the skills it requires."""
        version = version_of(if_match)
        await crib.zoo.change_skill(agent_id, skill_id, body, version=version, by=author(principal))
        return await _agent_json(crib.zoo, agent_id, response)

    @router.delete("/{agent_id}", response_model=RemovedAgent)
    async def delete_agent(
        principal: Annotated[Principal, owner], agent_id: str, if_match: IfMatch = None
    ) -> JsonObject:
        """Delete an agent and its brain. Its revisions are kept, so that it can be restored."""
        await crib.zoo.delete(agent_id, version=version_of(if_match), by=author(principal))
        return {"id": agent_id}

    # Both methods make a partial change: AgentZoo's clients send `PUT`, others expect `PATCH`.
    router.patch("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True, name="patch_agent")(
        change_agent
    )


def _add_revisions(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.get("/{agent_id}/revisions", response_model=list[RevisionShape])
    async def list_revisions(principal: Annotated[Principal, owner], agent_id: str) -> list[JsonObject]:
        """List the newest 200 revisions of an agent, newest first, even of a deleted one."""
        return [each.to_json() for each in await crib.zoo.revisions(agent_id)]

    @router.get("/{agent_id}/revisions/{version}", response_model=RevisionDetails, response_model_exclude_unset=True)
    async def show_revision(
        principal: Annotated[Principal, owner], agent_id: str, version: int, against: _Against = None
    ) -> JsonObject:
        """Return one revision of an agent and its diff to another version."""
        revision = await crib.zoo.revision(agent_id, version)
        other = version - 1 if against is None else against
        before = (await crib.zoo.revision(agent_id, other)).agent if other else None
        names = (f"version {other}", f"version {version}")
        text = await anyio.to_thread.run_sync(difference, before, revision.agent, names)
        agent = revision.agent.to_json() if revision.agent else None
        return revision.to_json() | {"agent": agent, "diff": text}

    @router.post(
        "/{agent_id}/revisions/{version}/restore", response_model=AgentShape, response_model_exclude_unset=True
    )
    async def restore_revision(
        response: Response, principal: Annotated[Principal, owner], agent_id: str, version: int
    ) -> JsonObject:
        """Restore an agent to an earlier revision, as a new version."""
        await crib.zoo.restore(agent_id, version, by=author(principal))
        return await _agent_json(crib.zoo, agent_id, response)


async def _agent_json(zoo: Zoo, agent_id: str, response: Response) -> JsonObject:
    shape = await zoo.whole(agent_id)
    response.headers["etag"] = f'"{shape["version"]}"'
    return shape
