"""`/api/agents`: the zoo. What is read and is not an agent stands under `-/`, which is no agent's id.

Reading is for every asker, of its own agent only where the asker is bound to one; only the owner changes anything.
Every answer about an agent has its version as `ETag`; `If-Match` refuses a change of anything else.
"""

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Response

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.server.api.agent_asking import FieldsRoute, IfMatch, author, check_sight, sees, version_of
from toolcrib.server.api.agent_brain import add_brain
from toolcrib.server.api.agent_shapes import (
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
from toolcrib.server.api.reading import asker, owner_only
from toolcrib.server.api.resource import Resource
from toolcrib.zoo import EntryQuery, Zoo
from toolcrib.zoo.difference import difference
from toolcrib.zoo.input import AgentChanges, AgentInput, InjectFormat, SkillChanges
from toolcrib.zoo.library import CATEGORIES, LIBRARY
from toolcrib.zoo.starters import STARTERS
from toolcrib.zoo.taking import take
from toolcrib.zoo.transfer import Form, write

_Format = Annotated[InjectFormat, Query(description="One prompt, or its parts.")]
_Form = Annotated[Form, Query(alias="format", description="AgentZoo's file, a sub-agent, or one file per skill.")]
_Template = Annotated[str | None, Query(description="An agent or a starter to begin with.", max_length=50)]
_Against = Annotated[int | None, Query(description="The version to compare with; else the one before.", ge=0)]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("agents", FieldsRoute)
    _add_lists(router, crib)
    _add_moving(router, crib)
    _add_agents(router, crib)
    _add_revisions(router, crib)
    add_brain(router, crib)
    return router


def _add_lists(router: APIRouter, crib: Crib) -> None:
    who = Depends(asker(crib.principals))

    @router.get("", response_model=list[AgentSummaryShape])
    async def list_agents(principal: Annotated[Principal, who]) -> list[JsonObject]:
        """All agents, by id."""
        return [each.to_json() for each in await crib.zoo.list() if sees(principal, each.id)]

    @router.get("/-/templates", response_model=list[AgentFields], response_model_exclude_unset=True)
    async def list_agent_templates(principal: Annotated[Principal, who]) -> list[JsonObject]:
        """The agents that every zoo starts with; each can be cloned, also after it was deleted."""
        return [agent.to_json() for agent in STARTERS]

    @router.get("/-/skills", response_model=list[LibrarySkill], response_model_exclude_unset=True)
    async def list_library_skills(principal: Annotated[Principal, who]) -> list[JsonObject]:
        """Skills to pick from."""
        categories = {category.id: category.to_json() for category in CATEGORIES}
        return [skill.to_json() | {"category": categories[skill.category_id]} for skill in LIBRARY]


def _add_moving(router: APIRouter, crib: Crib) -> None:
    who, owner = Depends(asker(crib.principals)), Depends(owner_only(crib))

    @router.post("/-/import", response_model=AgentImportAnswer, response_model_exclude_unset=True)
    async def import_agents(principal: Annotated[Principal, owner], body: AgentImport) -> JsonObject:
        """Take agents and skills of other tools: sub-agents, `SKILL.md`, AgentZoo's file."""
        files = [(file.name, file.text) for file in body.files]
        done = await take(crib.zoo, files, into=body.agent_id, dry_run=body.dry_run, by=author(principal))
        return done.to_json()

    @router.get("/{agent_id}/export", response_model=AgentExport, response_model_exclude_unset=True)
    async def export_agent(principal: Annotated[Principal, who], agent_id: str, form: _Form = "json") -> JsonObject:
        """One agent as files of another tool."""
        check_sight(principal, agent_id)
        kept = await crib.zoo.get(agent_id)
        entries = await crib.zoo.brain.find(agent_id, EntryQuery()) if form == "json" else ()
        return write(kept.agent, entries, form).to_json()

    @router.get("/{agent_id}/inject", response_model=InjectShape, response_model_exclude_unset=True)
    async def inject_agent(
        principal: Annotated[Principal, who], agent_id: str, format: _Format = "compiled"
    ) -> JsonObject:
        """What a chat needs to become this agent."""
        check_sight(principal, agent_id)
        return await crib.zoo.inject(agent_id, format, (await crib.placed(principal)).cwd)

    @router.post("/{agent_id}/clone", response_model=AgentShape, response_model_exclude_unset=True, status_code=201)
    async def clone_agent(
        response: Response, principal: Annotated[Principal, owner], agent_id: str, body: AgentChanges
    ) -> JsonObject:
        """Make another agent like this one, with the named fields changed and without its brain."""
        kept = await crib.zoo.clone(agent_id, body, by=author(principal))
        return await _shown(crib.zoo, kept.agent.id, response)


def _add_agents(router: APIRouter, crib: Crib) -> None:
    who, owner = Depends(asker(crib.principals)), Depends(owner_only(crib))

    @router.post("", response_model=AgentShape, response_model_exclude_unset=True, status_code=201)
    async def create_agent(
        response: Response, principal: Annotated[Principal, owner], body: AgentInput, template: _Template = None
    ) -> JsonObject:
        """Make an agent; with a template, one like that with the given fields changed."""
        if template is not None:
            kept = await crib.zoo.clone(template, body, by=author(principal))
        else:
            kept = await crib.zoo.create(body, by=author(principal))
        return await _shown(crib.zoo, kept.agent.id, response)

    @router.get("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def show_agent(response: Response, principal: Annotated[Principal, who], agent_id: str) -> JsonObject:
        """One agent with the newest entries of its brain and what its prompt costs."""
        check_sight(principal, agent_id)
        return await _shown(crib.zoo, agent_id, response)

    @router.put("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def change_agent(
        response: Response,
        principal: Annotated[Principal, owner],
        agent_id: str,
        body: AgentChanges,
        if_match: IfMatch = None,
    ) -> JsonObject:
        """Change the named fields of an agent; what is not named stays."""
        await crib.zoo.update(agent_id, body, version=version_of(if_match), by=author(principal))
        return await _shown(crib.zoo, agent_id, response)

    @router.patch("/{agent_id}/skills/{skill_id}", response_model=AgentShape, response_model_exclude_unset=True)
    async def change_skill(
        response: Response,
        principal: Annotated[Principal, owner],
        agent_id: str,
        skill_id: str,
        body: SkillChanges,
        if_match: IfMatch = None,
    ) -> JsonObject:
        """Change the named fields of one skill; switching it on switches on what it requires."""
        version = version_of(if_match)
        await crib.zoo.change_skill(agent_id, skill_id, body, version=version, by=author(principal))
        return await _shown(crib.zoo, agent_id, response)

    @router.delete("/{agent_id}", response_model=RemovedAgent)
    async def delete_agent(
        principal: Annotated[Principal, owner], agent_id: str, if_match: IfMatch = None
    ) -> JsonObject:
        """Delete an agent and its brain; its revisions stay, so that it can be restored."""
        await crib.zoo.delete(agent_id, version=version_of(if_match), by=author(principal))
        return {"id": agent_id}

    # A partial change under either method: clients of AgentZoo send `PUT`, others expect `PATCH`.
    router.patch("/{agent_id}", response_model=AgentShape, response_model_exclude_unset=True, name="patch_agent")(
        change_agent
    )


def _add_revisions(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.get("/{agent_id}/revisions", response_model=list[RevisionShape])
    async def list_revisions(principal: Annotated[Principal, owner], agent_id: str) -> list[JsonObject]:
        """The newest 200 changes of an agent, newest first; also of one that was deleted."""
        return [each.to_json() for each in await crib.zoo.revisions(agent_id)]

    @router.get("/{agent_id}/revisions/{version}", response_model=RevisionDetails, response_model_exclude_unset=True)
    async def show_revision(
        principal: Annotated[Principal, owner], agent_id: str, version: int, against: _Against = None
    ) -> JsonObject:
        """What an agent was, and what differs from another version."""
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
        """Make an agent again what it was, as a new version."""
        await crib.zoo.restore(agent_id, version, by=author(principal))
        return await _shown(crib.zoo, agent_id, response)


async def _shown(zoo: Zoo, agent_id: str, response: Response) -> JsonObject:
    shape = await zoo.whole(agent_id)
    response.headers["etag"] = f'"{shape["version"]}"'
    return shape
