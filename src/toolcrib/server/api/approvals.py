"""`/api/approvals`: questions to a person, and a person's answers.

The owner sees all of them. A token that may approve sees those that it may answer; for others there are none. Who may
answer is judged by `policy.approvals`, here as for every door. Reading never answers anything.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.approvals import Approval, ApprovalStatus
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal, Source
from toolcrib.policy.display import show
from toolcrib.server.api.policy_shapes import AnswerRequest, ApprovalShape
from toolcrib.server.api.reading import StrictRoute
from toolcrib.server.guard import PRINCIPAL

_Status = Annotated[ApprovalStatus | None, Query(description="Only those that stand so.")]
_Session = Annotated[str | None, Query(description="Only those of this session.", min_length=1, max_length=200)]
_Limit = Annotated[int, Query(ge=1, le=1000)]


def routes(crib: Crib) -> APIRouter:
    """The routes, on this crib."""
    router = APIRouter(prefix="/api/approvals", tags=["approvals"], route_class=StrictRoute)
    person = Depends(_person(crib))

    @router.get("", response_model=list[ApprovalShape], response_model_exclude_unset=True)
    async def list_approvals(
        principal: Annotated[Principal, person], status: _Status = None, session: _Session = None, limit: _Limit = 100
    ) -> list[JsonObject]:
        """Questions to a person, the newest first."""
        found = await crib.approvals.find(status=status, session=session, limit=limit)
        return [_shape(approval) for approval in found if _sees(crib, principal, approval)]

    @router.get("/{approval_id}", response_model=ApprovalShape, response_model_exclude_unset=True)
    async def show_approval(principal: Annotated[Principal, person], approval_id: str) -> JsonObject:
        """One question, with the whole arguments and what is remarkable about them."""
        return _shape(await _found(crib, principal, approval_id))

    @router.post("/{approval_id}", response_model=ApprovalShape, response_model_exclude_unset=True)
    async def answer_approval(
        principal: Annotated[Principal, person], approval_id: str, body: AnswerRequest
    ) -> JsonObject:
        """Answer a question for good. The first answer counts; whoever comes later is told so (409)."""
        await _found(crib, principal, approval_id)
        answer = await crib.approvals.answer(
            approval_id,
            body.decision,
            by=principal,
            scope=body.scope,
            reason=body.reason,
            arguments=body.arguments,
        )
        shape = _shape(await crib.approvals.get(approval_id))
        return shape if answer.rule is None else shape | {"rule": answer.rule.to_json()}

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


def _shape(approval: Approval) -> JsonObject:
    return approval.to_json() | {"shown": show(approval.given).to_json()}
