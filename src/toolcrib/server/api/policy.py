"""`/api/policy`: the rules, why something is decided as it is, and what other rules would have changed.

All of it is the owner's: who is bound by rules is told of them only in the words of a refusal.
"""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.host import Crib
from toolcrib.host.replay import replay
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.policy.simulate import recorded_call
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.policy_asking import FaultsRoute, server_note
from toolcrib.server.api.policy_shapes import (
    ExplanationShape,
    RuleChanges,
    RuleRequest,
    RuleShape,
    SimulateRequest,
    SimulationShape,
)
from toolcrib.server.api.reading import owner_only
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.shapes import ProblemShape
from toolcrib.server.strict import MalformedJson, parse_json

_Tool = Annotated[str | None, Query(description="`server/tool`, or the name of a known tool.", max_length=600)]
_Args = Annotated[str | None, Query(description="The arguments of the call, as JSON.", max_length=60_000)]
_Record = Annotated[int | None, Query(description="Explain the call of this audit record instead.", ge=1, le=2**62)]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("policy", FaultsRoute)
    _add_rules(router, crib)
    _add_reasons(router, crib)
    return router


def _add_rules(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))
    changes = Depends(owner_changes(crib))

    @router.get("/rules", response_model=list[RuleShape], response_model_exclude_unset=True)
    async def list_rules(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """All rules: those of files first, expired ones too."""
        return [rule.to_json() for rule in crib.permissions.list()]

    @router.get("/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_rule_problems(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """What is wrong in the files that hold rules and limits."""
        return [problem.to_json() for problem in crib.permissions.problems]

    @router.post("/rules", response_model=RuleShape, response_model_exclude_unset=True, status_code=201)
    async def add_rule(change: Annotated[Changing, changes], body: RuleRequest) -> JsonObject:
        """Add a rule; it counts from the next call on."""
        rule = await crib.permissions.draft(body.written(), by=change.principal.name)
        await change.make("rules.add", rule.to_json(), lambda: crib.permissions.remember(rule))
        return rule.to_json()

    @router.get("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def show_rule(principal: Annotated[Principal, owner], rule_id: str) -> JsonObject:
        """One rule."""
        return crib.permissions.get(rule_id).to_json()

    @router.patch("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def change_rule(change: Annotated[Changing, changes], rule_id: str, body: RuleChanges) -> JsonObject:
        """Change the named parts of a rule that stands in no file."""
        changed = {"id": crib.permissions.get(rule_id).id, "changes": body.written()}
        rule = await change.make("rules.change", changed, lambda: crib.permissions.change(rule_id, body.written()))
        return rule.to_json()

    @router.delete("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def remove_rule(change: Annotated[Changing, changes], rule_id: str) -> JsonObject:
        """Remove a rule that stands in no file; gives what it said."""
        rule = crib.permissions.get(rule_id)
        return (await change.make("rules.remove", rule.to_json(), lambda: crib.permissions.remove(rule_id))).to_json()


def _add_reasons(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.get("/explain", response_model=ExplanationShape, response_model_exclude_unset=True)
    async def explain_decision(
        principal: Annotated[Principal, owner], tool: _Tool = None, args: _Args = None, record: _Record = None
    ) -> JsonObject:
        """Why the asker sees a tool or not, what a call of it comes to, and the smallest change that flips it."""
        if record is not None:
            return await _explain_record(crib, record)
        if tool is None:
            raise InvalidRequest("request.invalid", "`tool` or `record` has to be given.")
        if principal.agent is not None and not crib.permissions.has_agent(principal.agent):
            raise NotFound("agent.unknown", f"There is no agent {principal.agent!r}.")
        return await _explain(crib, principal, _ref(crib, tool), _arguments(args))

    @router.post("/simulate", response_model=SimulationShape, response_model_exclude_unset=True)
    async def simulate_rules(principal: Annotated[Principal, owner], body: SimulateRequest) -> JsonObject:
        """Decide recorded calls again under other rules, and tell which would have come to something else."""
        return (await replay(crib, body.trial)).to_json()


async def _explain(crib: Crib, principal: Principal, ref: ToolRef, arguments: JsonObject | None) -> JsonObject:
    asker = await crib.placed(principal)
    note = await server_note(crib, ref, Path(asker.cwd) if asker.cwd is not None else None)
    return crib.gate.explain(asker, ref, arguments, note).to_json()


async def _explain_record(crib: Crib, number: int) -> JsonObject:
    """The same call, decided by what counts today, beside what was decided then."""
    record = await crib.audit.get(number)
    call = recorded_call(record)
    if call is None:
        raise InvalidRequest("request.invalid", f"Record {number} is not about a call.")
    explained = await _explain(crib, call.principal, call.ref, call.arguments)
    asker = call.asker(explained["verdict"])
    if asker != call.principal:
        explained = await _explain(crib, asker, call.ref, call.arguments)
    recorded = {"auditId": number, "at": call.at, "decision": call.recorded, "rules": record.get("rules", [])}
    return explained | {"recorded": recorded | {"uncertain": not call.whole}}


def _ref(crib: Crib, text: str) -> ToolRef:
    ref = ToolRef.parse(text) or crib.permissions.named(text)
    if ref is None:
        raise InvalidRequest("request.invalid", f"{text!r} is not a tool.", "Write `server/tool`.")
    return ref


def _arguments(text: str | None) -> JsonObject | None:
    if text is None:
        return None
    try:
        value = parse_json(text.encode())
    except MalformedJson as error:
        raise InvalidRequest("request.invalid", f"`args` is not JSON: {error}.") from error
    if not is_object(value):
        raise InvalidRequest("request.invalid", "`args` is not a JSON object.")
    return value
