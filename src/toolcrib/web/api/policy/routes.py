"""`/api/policy`: the rules, explanations of decisions, and simulations of other rules.

For the owner only: other principals learn about rules only from a refusal.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from toolcrib.gate.policy.rule_look_alikes import look_alikes
from toolcrib.gate.policy.simulate import recorded_call
from toolcrib.host import Crib
from toolcrib.host.reach import find_reach
from toolcrib.host.replay import replay
from toolcrib.host.rule_check import find_rule_findings, unmatched_rule
from toolcrib.host.suggest import DAYS, suggest
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, MalformedJson, is_object, parse_strict
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.problems import Problem
from toolcrib.model.tools import ToolRef
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.asking import FaultsRoute, server_note
from toolcrib.web.api.policy.marks import add_marks
from toolcrib.web.api.policy.shapes import (
    ExplanationShape,
    PermissionSuggestionShape,
    RuleChanges,
    RuleFindingShape,
    RuleRequest,
    RuleShape,
    SimulateRequest,
    SimulationShape,
    SubjectReachShape,
)
from toolcrib.web.api.policy.tool_sets import add_tool_sets
from toolcrib.web.api.reading import owner_only, viewer_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import ProblemShape

_Tool = Annotated[str | None, Query(description="`server/tool`, or the name of a known tool.", max_length=600)]
_Pattern = Annotated[str, Query(description="`server/tool` with `*` for any, or a known name.", max_length=600)]
_SessionSource = Annotated[Source, Query(alias="sessionSource", description="The source of the sessions of agents.")]
_SessionMode = Annotated[Mode, Query(alias="sessionMode", description="The mode of the sessions of agents.")]
_Args = Annotated[str | None, Query(description="The arguments of the call, as JSON.", max_length=60_000)]
_Record = Annotated[int | None, Query(description="Explain the call of this audit record instead.", ge=1, le=2**62)]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("policy", FaultsRoute)
    _add_rules(router, crib)
    _add_reasons(router, crib)
    add_marks(router, crib)
    add_tool_sets(router, crib)
    return router


def _add_rules(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))
    changes = Depends(owner_changes(crib))

    @router.get("/rules", response_model=list[RuleShape], response_model_exclude_unset=True)
    async def list_rules(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List all rules, including expired ones, those of files first."""
        return [rule.to_json() for rule in crib.permissions.list()]

    @router.get("/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_rule_problems(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List problems of the files with rules and limits, and rules that can be mistaken for others."""
        known = crib.catalog.at(principal.cwd).tools
        twins = look_alikes(crib.permissions.list(), known)
        return [problem.to_json() for problem in (*crib.permissions.problems, *twins)]

    @router.get("/check", response_model=list[RuleFindingShape], response_model_exclude_unset=True)
    async def check_rules(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List rules that are too broad, never decide or conflict, with a better rule where there is one."""
        return [finding.to_json() for finding in await find_rule_findings(crib)]

    @router.post("/rules", response_model=RuleShape, response_model_exclude_unset=True, status_code=201)
    async def add_rule(change: Annotated[Changing, changes], body: RuleRequest) -> JsonObject:
        """Add a rule. It applies from the next call on."""
        rule = await crib.permissions.draft(body.sent_fields(), by=change.principal.name)
        await change.make("rules.add", rule.to_json(), lambda: crib.permissions.remember(rule))
        problems = [*look_alikes([rule], crib.catalog.at(change.principal.cwd).tools)]
        if (found := await unmatched_rule(crib, rule)) is not None:
            problems.append(Problem(found.code, found.message, found.fix))
        return rule.to_json() | ({"problems": [each.to_json() for each in problems]} if problems else {})

    @router.get("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def show_rule(principal: Annotated[Principal, owner], rule_id: str) -> JsonObject:
        """Return one rule."""
        return crib.permissions.get(rule_id).to_json()

    @router.patch("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def change_rule(change: Annotated[Changing, changes], rule_id: str, body: RuleChanges) -> JsonObject:
        """Change the given fields of a rule that is not defined in a file."""
        changed = {"id": crib.permissions.get(rule_id).id, "changes": body.sent_fields()}
        rule = await change.make("rules.change", changed, lambda: crib.permissions.change(rule_id, body.sent_fields()))
        return rule.to_json()

    @router.delete("/rules/{rule_id}", response_model=RuleShape, response_model_exclude_unset=True)
    async def remove_rule(change: Annotated[Changing, changes], rule_id: str) -> JsonObject:
        """Remove a rule that is not defined in a file, and return it."""
        rule = crib.permissions.get(rule_id)
        return (await change.make("rules.remove", rule.to_json(), lambda: crib.permissions.remove(rule_id))).to_json()


def _add_reasons(router: APIRouter, crib: Crib) -> None:
    owner, viewer = Depends(owner_only(crib)), Depends(viewer_of(crib))

    @router.get("/explain", response_model=ExplanationShape, response_model_exclude_unset=True)
    async def explain_decision(
        _: Annotated[Principal, owner],
        principal: Annotated[Principal, viewer],
        tool: _Tool = None,
        args: _Args = None,
        record: _Record = None,
    ) -> JsonObject:
        """Explain whether a tool is visible, how a call is decided, and the smallest change that flips the decision."""
        if record is not None:
            return await _explain_record(crib, record)
        if tool is None:
            raise InvalidRequest("request.invalid", "`tool` or `record` is required.")
        crib.permissions.require_agent(principal.agent)
        return await _explain(crib, principal, _ref(crib, tool), _arguments(args))

    @router.get("/reach", response_model=list[SubjectReachShape], response_model_exclude_unset=True)
    async def show_reach(
        principal: Annotated[Principal, owner],
        pattern: _Pattern = "*",
        session_source: _SessionSource = "cli",
        session_mode: _SessionMode = "default",
        who: Annotated[str, Query(description="Only principals whose label contains this.", max_length=200)] = "",
    ) -> list[JsonObject]:
        """List what every principal can do with the tools that match a pattern, with the reasons.

        The principals are the owner's sources, all tokens, all agents and all schedules.
        """
        found = await find_reach(crib, pattern, source=session_source, mode=session_mode, who=who)
        return [each.to_json() for each in found]

    @router.get("/suggestions", response_model=list[PermissionSuggestionShape], response_model_exclude_unset=True)
    async def suggest_permissions(
        principal: Annotated[Principal, owner],
        days: Annotated[int, Query(description="Days of the record to examine.", ge=1, le=3650)] = DAYS,
    ) -> list[JsonObject]:
        """Suggest the smallest tool permissions that cover the recorded calls of agents, with a simulation of them.

        Without `agent`, every agent with recorded calls has a suggestion.
        """
        return [each.to_json() for each in await suggest(crib, principal.agent, days)]

    @router.post("/simulate", response_model=SimulationShape, response_model_exclude_unset=True)
    async def simulate_rules(principal: Annotated[Principal, owner], body: SimulateRequest) -> JsonObject:
        """Decide recorded calls again under other rules, and return those with a different verdict."""
        trial = body.trial
        if trial.session is not None:
            trial = replace(trial, session=await crib.sessions.resolve(trial.session))
        return (await replay(crib, trial)).to_json()


async def _explain(crib: Crib, principal: Principal, ref: ToolRef, arguments: JsonObject | None) -> JsonObject:
    caller = await crib.placed(principal)
    note = await server_note(crib, ref, Path(caller.cwd) if caller.cwd is not None else None)
    return crib.gate.explain(caller, ref, arguments, note).to_json()


async def _explain_record(crib: Crib, number: int) -> JsonObject:
    """Explain the recorded call under today's rules, next to the recorded decision."""
    record = await crib.audit.get(number)
    call = recorded_call(record)
    if call is None:
        raise InvalidRequest("request.invalid", f"Record {number} is not about a call.")
    explained = await _explain(crib, call.principal, call.ref, call.arguments)
    caller = call.caller(explained["verdict"])
    if caller != call.principal:
        explained = await _explain(crib, caller, call.ref, call.arguments)
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
        value = parse_strict(text.encode())
    except MalformedJson as error:
        raise InvalidRequest("request.invalid", f"`args` is not JSON: {error}.") from error
    if not is_object(value):
        raise InvalidRequest("request.invalid", "`args` is not a JSON object.")
    return value
