"""`/api/approvals`: pending and answered approvals.

The owner sees all of them. A token that may approve sees those that it may answer; other tokens see none. Whether an
answer counts is decided by `gate.approvals`, the same for every door. Reading never answers anything.

The owner also sees the questions of agents (`kind: "question"`), which are answered here or at their session.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Query, Request

from toolcrib.gate.approvals.display import show
from toolcrib.gate.approvals.requests import remember_as
from toolcrib.gate.policy.paths import REAL
from toolcrib.host import Crib
from toolcrib.model.approvals import Approval, ApprovalStatus
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal, Source
from toolcrib.model.sessions import AgentQuestion
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import AnswerRequest, ApprovalLinkShape, ApprovalShape
from toolcrib.web.api.reading import StrictRoute, door_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.sessions.shapes import AgentQuestionShape, AnsweredQuestion, QuestionAnswers
from toolcrib.web.limits import PRINCIPAL

_Status = Annotated[ApprovalStatus | None, Query(description="Only those with this status.")]
_Session = Annotated[str | None, Query(description="Only those of this session.", min_length=1, max_length=200)]
_Limit = Annotated[int, Query(ge=1, le=1000)]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("approvals", StrictRoute)
    person = Depends(_person(crib))
    changes = Depends(owner_changes(crib))

    @router.get("", response_model=list[ApprovalShape | AgentQuestionShape], response_model_exclude_unset=True)
    async def list_approvals(
        principal: Annotated[Principal, person], status: _Status = None, session: _Session = None, limit: _Limit = 100
    ) -> list[JsonObject]:
        """List approvals and questions, newest first."""
        found = await crib.approvals.find(status=status, session=session, limit=limit)
        shapes = [_shape(crib, approval) for approval in found if _sees(crib, principal, approval)]
        if status in (None, "pending"):
            shapes += [each.to_json() for each in await _questions(crib, principal) if session in (None, each.session)]
        return sorted(shapes, key=lambda shape: shape["createdAt"], reverse=True)[:limit]

    @router.get("/{approval_id}", response_model=ApprovalShape | AgentQuestionShape, response_model_exclude_unset=True)
    async def show_approval(principal: Annotated[Principal, person], approval_id: str) -> JsonObject:
        """Return one approval with its full arguments and remarks on them."""
        asked = next((each for each in await _questions(crib, principal) if each.id == approval_id), None)
        return _shape(crib, await _find(crib, principal, approval_id)) if asked is None else asked.to_json()

    @router.post("/{approval_id}", response_model=ApprovalShape, response_model_exclude_unset=True)
    async def answer_approval(
        request: Request, principal: Annotated[Principal, person], approval_id: str, body: AnswerRequest
    ) -> JsonObject:
        """Answer an approval permanently. The first answer counts; later ones get a 409."""
        for asked in await _questions(crib, principal):
            if asked.id == approval_id:
                in_session = f"/api/sessions/{asked.session}/questions/{asked.id}"
                place = in_session if asked.session else f"/api/approvals/{asked.id}/answers"
                raise InvalidRequest("question.answer", f"{asked.id} is a question of an agent.", f"Answer at {place}.")
        await _find(crib, principal, approval_id)
        changing = Changing(crib, principal, door_of(request, principal))
        details: JsonObject = {"id": approval_id, "decision": body.decision, "scope": body.scope}
        more: JsonObject = {"reason": body.reason, "arguments": body.arguments, "prefix": body.prefix}
        given: JsonObject = more | {"conditions": body.edited, "uses": body.uses, "expires_at": body.expires_at}
        answer = await changing.make(
            "approvals.answer",
            details | {key: value for key, value in (more | body.limits).items() if value is not None},
            lambda: crib.approvals.answer(approval_id, body.decision, by=principal, scope=body.scope, **given),
        )
        shape = _shape(crib, await crib.approvals.get(approval_id))
        return shape if answer.rule is None else shape | {"rule": answer.rule.to_json()}

    @router.post("/{approval_id}/link", response_model=ApprovalLinkShape)
    async def link_approval(changing: Annotated[Changing, changes], approval_id: str) -> JsonObject:
        """Return a one-time link that answers a pending approval from another device. It counts as the owner."""
        return await changing.make("approvals.link", {"id": approval_id}, lambda: _link(crib, approval_id))

    @router.post("/{approval_id}/answers", response_model=AnsweredQuestion)
    async def answer_agent(
        principal: Annotated[Principal, person], approval_id: str, body: QuestionAnswers
    ) -> JsonObject:
        """Answer an agent's question, inside or outside of a session. The first answer counts; later ones get a 409."""
        answers = await crib.sessions.answer(approval_id, body.answers, by=principal)
        return {"questionId": approval_id, "answers": dict(answers)}

    return router


async def _link(crib: Crib, id: str) -> JsonObject:
    approval = await crib.approvals.get(id)
    url = crib.approval_links.url(approval)
    return {"approvalId": id, "url": url, "expiresAt": approval.to_json()["expiresAt"]}


def _person(crib: Crib) -> Callable[..., Principal]:
    """Return a dependency for the principal. The owner may set the source, but cannot answer in another name."""

    def caller(
        request: Request, source: Annotated[Source | None, Query(description="Answer from there.")] = None
    ) -> Principal:
        asking: Principal = request.scope[PRINCIPAL]
        return crib.principals.owner(source or asking.source) if asking.is_owner else asking

    return caller


async def _find(crib: Crib, principal: Principal, id: str) -> Approval:
    approval = await crib.approvals.get(id)
    if not _sees(crib, principal, approval):
        raise NotFound("approval.unknown", f"Approval {id!r} not found.")
    return approval


def _sees(crib: Crib, principal: Principal, approval: Approval) -> bool:
    """Return whether the principal sees an approval: it may answer it and know of the tool."""
    if principal.is_owner:
        return True
    may_answer = crib.principals.may_answer(principal, approval.principal)
    return may_answer and crib.gate.may_know(principal, approval.ref.server, approval.ref.tool)


async def _questions(crib: Crib, principal: Principal) -> tuple[AgentQuestion, ...]:
    return await crib.sessions.questions() if principal.is_owner else ()


def _shape(crib: Crib, approval: Approval) -> JsonObject:
    masked = crib.approvals.shown(approval)
    is_masked = masked.arguments != approval.arguments
    shown = show(masked.given, approval.principal.cwd, REAL, is_masked=is_masked)
    shape = masked.to_json() | {"kind": "approval", "shown": shown.to_json()}
    if approval.status == "pending":
        shape["rememberAs"] = remember_as(approval)
        if approval.remembering.refusal is not None:
            shape["onceOnly"] = approval.remembering.refusal
        if held := crib.gate.marks.held(approval.principal):
            shape["marks"] = held.to_json()
    return shape
