"""`/api/approvals`: questions to a person, and a person's answers.

The owner sees all of them. A token that may approve sees those that it may answer; for others there are none. Who may
answer is judged by `policy.approvals`, here as for every door. Reading never answers anything.

What an agent asks (`kind: "question"`) is listed too, for the owner, and answered here or at its session.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Query, Request

from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.host import Crib
from toolcrib.model.approvals import Approval, ApprovalStatus
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal, Source
from toolcrib.model.sessions import AgentQuestion
from toolcrib.policy.display import show
from toolcrib.server.api.changing import Changing
from toolcrib.server.api.policy_shapes import AnswerRequest, ApprovalShape
from toolcrib.server.api.reading import StrictRoute, door_of
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.session_shapes import AgentQuestionShape, AnsweredQuestion, QuestionAnswers
from toolcrib.server.guard import PRINCIPAL

_Status = Annotated[ApprovalStatus | None, Query(description="Only those that stand so.")]
_Session = Annotated[str | None, Query(description="Only those of this session.", min_length=1, max_length=200)]
_Limit = Annotated[int, Query(ge=1, le=1000)]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("approvals", StrictRoute)
    person = Depends(_person(crib))

    @router.get("", response_model=list[ApprovalShape | AgentQuestionShape], response_model_exclude_unset=True)
    async def list_approvals(
        principal: Annotated[Principal, person], status: _Status = None, session: _Session = None, limit: _Limit = 100
    ) -> list[JsonObject]:
        """Questions to a person, the newest first."""
        found = await crib.approvals.find(status=status, session=session, limit=limit)
        shapes = [_shape(approval) for approval in found if _sees(crib, principal, approval)]
        if status in (None, "pending"):
            shapes += [each.to_json() for each in _questions(crib, principal) if session in (None, each.session)]
        return sorted(shapes, key=lambda shape: shape["createdAt"], reverse=True)[:limit]

    @router.get("/{approval_id}", response_model=ApprovalShape | AgentQuestionShape, response_model_exclude_unset=True)
    async def show_approval(principal: Annotated[Principal, person], approval_id: str) -> JsonObject:
        """One question, with the whole arguments and what is remarkable about them."""
        asked = next((each for each in _questions(crib, principal) if each.id == approval_id), None)
        return _shape(await _found(crib, principal, approval_id)) if asked is None else asked.to_json()

    @router.post("/{approval_id}", response_model=ApprovalShape, response_model_exclude_unset=True)
    async def answer_approval(
        request: Request, principal: Annotated[Principal, person], approval_id: str, body: AnswerRequest
    ) -> JsonObject:
        """Answer a question for good. The first answer counts; whoever comes later is told so (409)."""
        for asked in _questions(crib, principal):
            if asked.id == approval_id:
                in_session = f"/api/sessions/{asked.session}/questions/{asked.id}"
                place = in_session if asked.session else f"/api/approvals/{asked.id}/answers"
                raise InvalidRequest("question.answer", f"{asked.id} is a question of an agent.", f"Answer at {place}.")
        await _found(crib, principal, approval_id)
        changing = Changing(crib, principal, door_of(request, principal))
        said: JsonObject = {"id": approval_id, "decision": body.decision, "scope": body.scope}
        said |= {} if body.reason is None else {"reason": body.reason}
        answer = await changing.make(
            "approvals.answer",
            said | ({} if body.arguments is None else {"arguments": body.arguments}),
            lambda: crib.approvals.answer(
                approval_id,
                body.decision,
                by=principal,
                scope=body.scope,
                reason=body.reason,
                arguments=body.arguments,
            ),
        )
        shape = _shape(await crib.approvals.get(approval_id))
        return shape if answer.rule is None else shape | {"rule": answer.rule.to_json()}

    @router.post("/{approval_id}/answers", response_model=AnsweredQuestion)
    async def answer_agent(
        principal: Annotated[Principal, person], approval_id: str, body: QuestionAnswers
    ) -> JsonObject:
        """Answer what an agent asks, in a session or outside of any. The first answer counts (409 for later ones)."""
        answers = await crib.sessions.answer(approval_id, body.answers, by=principal)
        return {"questionId": approval_id, "answers": dict(answers)}

    return router


def _person(crib: Crib) -> Callable[..., Principal]:
    """Who asks. The owner may say from where, and nothing else: an answer is given in nobody's name but one's own."""

    def who(
        request: Request, source: Annotated[Source | None, Query(description="Answer from there.")] = None
    ) -> Principal:
        asking: Principal = request.scope[PRINCIPAL]
        return crib.principals.owner(source or asking.source) if asking.is_owner else asking

    return who


async def _found(crib: Crib, principal: Principal, id: str) -> Approval:
    approval = await crib.approvals.get(id)
    if not _sees(crib, principal, approval):
        raise NotFound("approval.unknown", f"There is no question {id!r}.")
    return approval


def _sees(crib: Crib, principal: Principal, approval: Approval) -> bool:
    return principal.is_owner or crib.principals.may_answer(principal, approval.principal)


def _questions(crib: Crib, principal: Principal) -> tuple[AgentQuestion, ...]:
    return crib.sessions.questions() if principal.is_owner else ()


def _shape(approval: Approval) -> JsonObject:
    return approval.to_json() | {"kind": "approval", "shown": show(approval.given).to_json()}
