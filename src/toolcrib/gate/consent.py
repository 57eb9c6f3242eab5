"""Getting a person's word on a call: asked once, wherever somebody may answer, and waited for with signs of life.

The question is open in the console, on the command line and over the API. An MCP client whose token may approve is
asked as well, with an elicitation; whoever answers first decides. While nobody does, the client is told now and then
that the call waits and where it can be answered. A client that does not want to wait gets a handle instead.

Above: the gate. Below: `policy.approvals`. It must never take a word that `approvals` did not accept.
"""

import logging
from collections.abc import Callable

import anyio

from toolcrib.model.approvals import Answer, Approval, Question
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, Client, ReportProgress
from toolcrib.policy.approvals import WAIT, Approvals, Asked, Check
from toolcrib.policy.display import show
from toolcrib.policy.handles import Handles

logger = logging.getLogger(__name__)

HANDLE = "handle"
"""What a client says that wants to come back for the answer; then it says the number of the question."""
SIGN_OF_LIFE = 10.0
"""Seconds between two reports to a client that waits."""
_A_LITTLE = 1e-6
"""By so much a call is further while it waits: progress has to grow, and what the tool reports comes after this."""

_FORM: JsonObject = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
        "reason": {"type": "string", "title": "Reason, told to the model"},
    },
    "required": ["decision"],
}


class Consent:
    """Asks persons on behalf of the gate."""

    def __init__(
        self, approvals: Approvals, handles: Handles, may_answer: Callable[[Principal, Principal], bool]
    ) -> None:
        self._approvals = approvals
        self._handles = handles
        self._may_answer = may_answer

    async def obtain(
        self, question: Question, context: CallContext, check: Check, patience: float | None = None
    ) -> Answer:
        """Ask, and wait for the answer, for `patience` seconds; raises `Denied` where too many questions are open."""
        async with self._approvals.asked(question, seconds=patience or WAIT, check=check) as asked:
            async with anyio.create_task_group() as beside:
                client = context.client
                if context.report_progress is not None:
                    beside.start_soon(self._report, asked, context.report_progress)
                if client is not None and self._is_asked(client, question.principal):
                    beside.start_soon(self._elicit, asked, question, client)
                await self._approvals.wait(asked)
                beside.cancel_scope.cancel()
            return await self._approvals.wait(asked)

    async def fetch(self, question: Question, check: Check, handle: str) -> Answer | Approval:
        """Ask without waiting, if `handle` is `HANDLE`; else the answer to the question of this number.

        Gives the question itself while nobody has answered it. Raises as `obtain` and `Handles.fetch` do.
        """
        if handle == HANDLE:
            return await self._handles.ask(question, check)
        return await self._handles.fetch(handle, question)

    def _is_asked(self, client: Client, asker: Principal) -> bool:
        return client.ask is not None and "elicitation" in client.capabilities and self._may_answer(asker, asker)

    async def _report(self, asked: Asked, report: ReportProgress) -> None:
        reports = 0
        while True:
            reports += 1
            text = f"Waiting for a person: toolcrib approvals approve {asked.approval.id}"
            try:
                await report(reports * _A_LITTLE, None, text)
            except Exception as error:  # noqa: BLE001 boundary: a client that cannot be told still waits
                logger.info("The client of question %s could not be told: %s", asked.approval.id, error)
            await anyio.sleep(SIGN_OF_LIFE)

    async def _elicit(self, asked: Asked, question: Question, client: Client) -> None:
        """Ask the person behind the client; one who only closes the question may still answer it elsewhere."""
        assert client.ask is not None
        shown = show(asked.approval.given)
        message = f"May {question.ref} be called? {question.why}\n\n{shown.text}"
        if shown.hidden:
            message += f"\n\n{shown.hidden} characters in it are not visible; they are written out above."
        try:
            said = await client.ask("elicitation/create", {"message": message, "requestedSchema": _FORM})
            decision, reason = _read(said)
            if decision == "approve":
                await self._approvals.answer(asked.approval.id, "approve", by=question.principal)
            elif decision == "deny":
                await self._approvals.answer(asked.approval.id, "deny", by=question.principal, reason=reason)
        except Exception as error:  # noqa: BLE001 boundary: where the client cannot be asked, others still can
            logger.info("The client could not answer question %s: %s", asked.approval.id, error)


def _read(said: JsonObject) -> tuple[str | None, str | None]:
    """What the person chose; declining is a no, closing the question is nothing."""
    if said.get("action") == "decline":
        return "deny", None
    content: Json = said.get("content")
    if said.get("action") != "accept" or not is_object(content):
        return None, None
    decision, reason = content.get("decision"), content.get("reason")
    return (decision if isinstance(decision, str) else None), (reason if isinstance(reason, str) and reason else None)
