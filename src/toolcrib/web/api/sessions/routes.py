"""`/api/sessions`: conversations of agents. A message is only a trigger; its results are read from the events.

For the owner only. An id may be abbreviated while it is unambiguous. The owner may set the source of a session when
creating it, and the source never changes.
"""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal

import anyio
import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from toolcrib.agents.sessions.markdown import markdown
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.host import Crib
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.principals import Principal, Source
from toolcrib.model.sessions import SessionEvent, SessionState
from toolcrib.store.sessions import SessionFilter
from toolcrib.web.api.reading import StrictRoute, check_owner, json_list, path_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.sessions.replays import add_replays
from toolcrib.web.api.sessions.shapes import (
    AnsweredQuestion,
    ForkRequest,
    FoundSessionShape,
    InterruptAnswer,
    MessageAnswer,
    MessageRequest,
    QuestionAnswers,
    SessionChanges,
    SessionRequest,
    SessionShape,
)
from toolcrib.web.limits import ENDED, PRINCIPAL
from toolcrib.web.sse import MEDIA_TYPE, PIECE, SessionStream, resume_point

_LINES = "application/x-ndjson"
_MARKDOWN = "text/markdown"

_SessionId = Annotated[str, Path(max_length=200, description="The session id, or a unique prefix.")]
_Cwd = Annotated[str | None, Query(max_length=4096, description="Only sessions in this directory; all if empty.")]
_From = Annotated[str | None, Query(max_length=4096, description="The working directory, if the body has none.")]
_Agent = Annotated[str | None, Query(alias="agentId", max_length=200, description="Only sessions of this agent.")]
_State = Annotated[SessionState | None, Query(description="Only those with this status.")]
_Limit = Annotated[int, Query(ge=1, le=1000)]
_Found = Annotated[bool, Query(description="Include conversations that Claude Code keeps itself.")]
_After = Annotated[
    int | None, Query(ge=0, le=2**53, description="Continue after this event number; by default only new events.")
]
_Format = Annotated[Literal["jsonl", "markdown"], Query(description="`jsonl` for events, `markdown` for text.")]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("sessions", StrictRoute)
    add_replays(router, crib, _owner(crib), _id(crib))
    _add_collection(router, crib)
    _add_sessions(router, crib)
    _add_talking(router, crib)
    _add_reading(router, crib)
    return router


def _add_collection(router: APIRouter, crib: Crib) -> None:
    owner = Depends(_owner(crib))

    @router.post("", response_model=SessionShape, response_model_exclude_unset=True, status_code=201)
    async def create_session(
        response: Response, principal: Annotated[Principal, owner], body: SessionRequest, cwd: _From = None
    ) -> JsonObject:
        """Create a session. Its process starts with the first message."""
        session = await crib.sessions.create(
            NewSession(
                source=body.source or principal.source,
                cwd=body.cwd or cwd or None,
                agent=body.agent_id,
                mode=body.mode,
                model=body.model,
                title=body.title,
                runner=body.runner,
                limits=body.limits.limits,
                resume=body.resume,
            )
        )
        if body.record:
            crib.recordings.start(session.id)
        response.headers["location"] = f"/api/sessions/{session.id}"
        return session.to_json()

    @router.get("", response_model=list[SessionShape | FoundSessionShape], dependencies=[owner])
    async def list_sessions(
        cwd: _Cwd = None, agent: _Agent = None, state: _State = None, limit: _Limit = 200, found: _Found = False
    ) -> Response:
        """List sessions, most recently used first."""
        place = str(await anyio.Path(path_of(cwd)).resolve()) if cwd else None
        sessions = await crib.sessions.list(SessionFilter(place, agent or None, state, limit))
        shapes = [session.to_json() for session in sessions]
        if found and not agent and state is None:  # found sessions have neither
            shapes += [each.to_json() for each in await crib.transcripts.find(place, limit)]
            shapes = sorted(shapes, key=lambda shape: shape["updatedAt"], reverse=True)[:limit]
        return json_list(shapes)


def _add_sessions(router: APIRouter, crib: Crib) -> None:
    known = Depends(_id(crib))

    @router.get("/{session_id}", response_model=SessionShape, response_model_exclude_unset=True)
    async def show_session(id: Annotated[str, known]) -> JsonObject:
        """Return one session with its state and usage."""
        session = await crib.sessions.get(id)
        held = crib.gate.marks.held(session.principal)
        return session.to_json() | ({"marks": held.to_json()} if held else {})

    @router.patch("/{session_id}", response_model=SessionShape, response_model_exclude_unset=True)
    async def change_session(id: Annotated[str, known], body: SessionChanges) -> JsonObject:
        """Change the mode, model or title, even while the session is working."""
        changes = body.model_dump(exclude_unset=True)
        session = await crib.sessions.change(id, **changes) if changes else await crib.sessions.get(id)
        return session.to_json()

    @router.post("/{session_id}/fork", response_model=SessionShape, response_model_exclude_unset=True, status_code=201)
    async def fork_session(
        response: Response, id: Annotated[str, known], body: ForkRequest | None = None
    ) -> JsonObject:
        """Create a session that continues from a copy of this one's conversation."""
        session = await crib.sessions.fork(id, body.title if body is not None else None)
        response.headers["location"] = f"/api/sessions/{session.id}"
        return session.to_json()

    @router.delete("/{session_id}", status_code=204, response_class=Response)
    async def delete_session(id: Annotated[str, known]) -> None:
        """Delete a session and its events. Its followers receive a final `closed` status."""
        await crib.sessions.delete(id)
        crib.recordings.delete(id)


def _add_talking(router: APIRouter, crib: Crib) -> None:
    owner, known = Depends(_owner(crib)), Depends(_id(crib))

    @router.post("/{session_id}/messages", response_model=MessageAnswer, status_code=202)
    async def send_message(id: Annotated[str, known], body: MessageRequest) -> JsonObject:
        """Send a message to the agent. During an answer, the message is queued and reported as such."""
        event = await crib.sessions.send(id, body.content)
        return {"messageId": event.data["messageId"], "queued": event.data["queued"], "seq": event.seq}

    @router.post("/{session_id}/interrupt", response_model=InterruptAnswer)
    async def interrupt_session(id: Annotated[str, known]) -> JsonObject:
        """Interrupt the answer in progress. Queued messages are still answered."""
        return {"interrupted": await crib.sessions.interrupt(id)}

    @router.post("/{session_id}/questions/{question_id}", response_model=AnsweredQuestion)
    async def answer_question(
        principal: Annotated[Principal, owner], id: Annotated[str, known], question_id: str, body: QuestionAnswers
    ) -> JsonObject:
        """Answer an agent's question. The first answer counts; later ones get a 409."""
        asked = next((each for each in await crib.sessions.questions() if each.id == question_id), None)
        if asked is not None and asked.session != id:
            raise NotFound("question.unknown", f"Session {id} has no question {question_id!r}.")
        answers = await crib.sessions.answer(question_id, body.answers, by=principal)
        return {"questionId": question_id, "answers": dict(answers)}


def _add_reading(router: APIRouter, crib: Crib) -> None:
    known = Depends(_id(crib))

    @router.get(
        "/{session_id}/events",
        response_class=Response,
        responses={200: {"description": "Events.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def follow_session(request: Request, id: Annotated[str, known], after: _After = None) -> Response:
        """Stream a session's events, all of them with `after=0`: `id` is the number, `event` the kind, `data` JSON."""
        log = await crib.sessions.events(id)
        return SessionStream(log, resume_point(request, after), ended=request.scope.get(ENDED))

    @router.get(
        "/{session_id}/transcript",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "JSON Lines, one event each, or Markdown.",
                "content": {each: {"schema": {"type": "string"}} for each in (_LINES, _MARKDOWN)},
            }
        },
    )
    async def export_session(session_id: _SessionId, request: Request, format: _Format = "jsonl") -> StreamingResponse:
        """Export the transcript of a session, or of a conversation that Claude Code keeps itself."""
        check_owner(request.scope[PRINCIPAL])
        title, events = await _find(crib, session_id)
        if format == "markdown":
            return StreamingResponse(_join(markdown(title, events)), media_type=f"{_MARKDOWN}; charset=utf-8")
        return StreamingResponse(_join(_lines(events)), media_type=_LINES)


def _owner(crib: Crib) -> Callable[..., Principal]:
    """Return a dependency for the owner, who may set the source but cannot answer in another name."""

    def caller(
        request: Request,
        source: Annotated[Source | None, Query(description="Act with this source; owner only.")] = None,
    ) -> Principal:
        asking: Principal = request.scope[PRINCIPAL]
        check_owner(asking)
        return crib.principals.owner(source or asking.source)

    return caller


def _id(crib: Crib) -> Callable[..., object]:
    """Return a dependency for the full id of the session in the path."""
    owner = Depends(_owner(crib))

    async def known(_: Annotated[Principal, owner], session_id: _SessionId) -> str:
        return await crib.sessions.resolve(session_id)

    return known


async def _find(crib: Crib, id: str) -> tuple[str, AsyncIterator[SessionEvent]]:
    """Return the title and events of a conversation."""
    try:
        session = await crib.sessions.get(await crib.sessions.resolve(id))
    except NotFound:
        if not await crib.transcripts.holds(id):
            raise
        return id, crib.transcripts.read(id)
    return session.title or session.id, crib.sessions.transcript(session.id)


async def _lines(events: AsyncIterator[SessionEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield dumps(event.shape, option=orjson.OPT_APPEND_NEWLINE)


async def _join(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in larger pieces: sending one costs more than creating it."""
    held: list[bytes] = []
    size = 0
    async for part in parts:
        held.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
