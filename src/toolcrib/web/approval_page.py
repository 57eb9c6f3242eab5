"""`/approve/…`: the page of an approval link, on which a person answers one approval without signing in.

Opening the page changes nothing, so that a preview bot cannot answer. Only its form does, once, and only for this call.

Must never show less of the arguments than the console does.
"""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from toolcrib.gate.approvals.display import show
from toolcrib.gate.approvals.links import LINK_PATH, check_claim
from toolcrib.gate.policy.paths import REAL
from toolcrib.host import Crib
from toolcrib.model.approvals import Approval, Verb
from toolcrib.model.errors import CODES, InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.web.console.refusal import bare_page, shown_text

BY_LINK = "approval link"
"""The name under which answers by link are stored."""


def link_routes(crib: Crib) -> list[Route]:
    """Return the routes of approval links."""
    page = ApprovalPage(crib)
    path = f"{LINK_PATH}{{token}}"
    return [Route(path, page.show, methods=["GET"]), Route(path, page.answer, methods=["POST"])]


class ApprovalPage:
    """Shows and answers the approvals of one crib. The token in the path is the credential."""

    def __init__(self, crib: Crib) -> None:
        self._crib = crib

    async def show(self, request: Request) -> Response:
        """Return the page of an approval. Changes nothing."""
        try:
            approval = await self._approval(request)
        except ToolcribError as error:
            return _refusal(error)
        return HTMLResponse(bare_page("Approval", self._form(approval)))

    async def answer(self, request: Request) -> Response:
        """Approve or deny the call once."""
        try:
            form = await request.form()
            verb = _verb(str(form.get("decision", "")))
            approval = await self._approval(request)
            reason = str(form.get("reason", "")).strip() or None
            await self._answer(approval, verb, reason if verb == "deny" else None)
        except ToolcribError as error:
            return _refusal(error)
        done = "Approved" if verb == "approve" else "Denied"
        call = f"<code>{shown_text(str(approval.ref))}</code>"
        outcome = f"{call} runs once with these arguments." if verb == "approve" else f"{call} does not run."
        return HTMLResponse(bare_page(done, f"<h1>{done}</h1><p>{outcome}</p><p class=soft>The link is used up.</p>"))

    async def _approval(self, request: Request) -> Approval:
        """Return the approval that the link can answer now. Raises for any other link."""
        claim = self._crib.approval_links.read(request.path_params["token"])
        approval = await self._crib.approvals.get(claim.approval)
        check_claim(claim, approval, datetime.now(UTC))
        return approval

    async def _answer(self, approval: Approval, verb: Verb, reason: str | None) -> None:
        crib = self._crib
        person = replace(crib.principals.owner("web"), name=BY_LINK)
        details: JsonObject = {"id": approval.id, "decision": verb, "scope": "once"}
        details |= {} if reason is None else {"reason": reason}
        answer = partial(crib.approvals.answer, approval.id, verb, by=person, reason=reason)
        await crib.changes.make("approvals.answer", details, answer, by=person, door="link")

    def _form(self, approval: Approval) -> str:
        masked = self._crib.approvals.shown(approval)
        is_masked = masked.arguments != approval.arguments
        shown = show(masked.given, approval.principal.cwd, REAL, is_masked=is_masked)
        read = self._crib.gate.marks.held(approval.principal).sentence()
        warnings = [read] if read else []
        warnings += [f"{remark.pointer or 'The arguments'}: {remark.message}" for remark in shown.remarks]
        parts = "".join(
            f"<dt>{shown_text(part.name)} <span class=soft>{part.characters:,} characters</span></dt>"
            f"<dd><pre>{shown_text(part.text)}</pre></dd>"
            for part in shown.arguments
        )
        return f"""<h1>Call <code>{shown_text(str(approval.ref))}</code>?</h1>
<p>{shown_text(approval.why)}</p>
<p class=soft>Requested by {shown_text(_caller_label(approval))}.</p>
{"".join(f'<p class="wrong" role="note"><strong>Warning:</strong> {shown_text(each)}</p>' for each in warnings)}
{f"<dl>{parts}</dl>" if parts else "<p class=soft>No arguments.</p>"}
<p class=soft>Expires at {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC; the call is denied then.</p>
<form method="post">
<label for="reason">Reason for denying, sent to the agent</label>
<input id="reason" name="reason" autocomplete="off" maxlength="2000">
<button name="decision" value="deny" class="plain">Deny</button>
<button name="decision" value="approve">Approve once</button>
</form>"""


def _caller_label(approval: Approval) -> str:
    principal = approval.principal
    parts = (principal.name, principal.source, principal.agent, principal.cwd)
    return f"{', '.join(each for each in parts if each)}, through {approval.door}"


def _verb(decision: str) -> Verb:
    if decision not in ("approve", "deny"):
        raise InvalidRequest("request.malformed", "Choose approve or deny.")
    return "approve" if decision == "approve" else "deny"


def _refusal(error: ToolcribError) -> Response:
    """Return a page with the reason, without a link to the console, which this address does not serve."""
    meaning = CODES[error.code].meaning
    content = f"<h1>{shown_text(meaning)}</h1><p>{shown_text(error.message)}</p>"
    status = HTTPStatus.FORBIDDEN if isinstance(error, NotFound) else error.status
    return HTMLResponse(bare_page(meaning, content), status)
