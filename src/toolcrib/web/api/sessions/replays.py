"""Routes of `/api/sessions` for recordings: export, replay and compare. For the owner only."""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from toolcrib.agents.sessions.recording.replayed_runtime import ReplayOptions
from toolcrib.host import Crib
from toolcrib.host.session_replays import ReplayRequest
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.sessions.shapes import SessionShape
from toolcrib.web.api.shapes import Shape

_LINES = "application/x-ndjson"
_RECORDING_LIMIT = 64 * 1_048_576


class ReplayBody(Shape):
    """How to replay a recording."""

    live_tools: bool = Field(False, description="Call tools through the gate instead of taking recorded results.")
    live_model: bool = Field(False, description="Send requests to the model instead of taking recorded answers.")
    until: int | None = Field(None, ge=1, description="End at this event of the recorded session.")
    prompt: str | None = Field(None, description="Then continue with this prompt, as a live fork.")
    cwd: str | None = Field(None, min_length=1, max_length=4096, description="The directory of the replay.")

    def request(self, principal: Principal) -> ReplayRequest:
        """Return the request."""
        options = ReplayOptions(self.live_tools, self.live_model)
        return ReplayRequest(options, self.until, self.prompt, self.cwd, principal.source)


class ReplayFileBody(ReplayBody):
    """A recording of any home, and how to replay it."""

    recording: str = Field(max_length=_RECORDING_LIMIT, description="The lines of an exported recording.")


class RunStepShape(Shape):
    """One step of a run."""

    kind: Literal["prompt", "call", "text", "error"]
    name: str = Field(description="The text, or the model's name of the tool.")
    arguments: Json = None
    result: Json = None
    is_error: bool = False


class RunPairShape(Shape):
    """A step of both runs; null if one has no such step."""

    left: RunStepShape | None
    right: RunStepShape | None
    same: bool


class ComparedRunShape(Shape):
    """One of the compared runs."""

    session_id: str
    cost_usd: float
    input_tokens: int
    output_tokens: int
    calls: int
    ended: str | None


class ComparisonShape(Shape):
    """Two runs side by side."""

    left: ComparedRunShape
    right: ComparedRunShape
    steps: list[RunPairShape]
    differences: int


class ReplayFailure(Shape):
    """Why a replay failed."""

    code: str
    message: str
    hint: str = ""


class ReplayShape(Shape):
    """A replay: its session, how it ended, and how it differs from the recorded run (`left`)."""

    session: SessionShape
    reason: str
    failure: ReplayFailure | None = None
    comparison: ComparisonShape | None = None


def add_replays(
    router: APIRouter, crib: Crib, owner: Callable[..., Principal], session_id: Callable[..., object]
) -> None:
    """Add these routes. Must precede those that match any session."""
    known, caller = Depends(session_id), Depends(owner)

    @router.post("/replay", response_model=ReplayShape, response_model_exclude_unset=True)
    async def replay_recording(principal: Annotated[Principal, caller], body: ReplayFileBody) -> JsonObject:
        """Replay an exported recording, also of another home, in a new session. Returns when it has ended."""
        return (await crib.replays.replay(body.recording.encode(), body.request(principal))).to_json()

    @router.post("/{session_id}/replay", response_model=ReplayShape, response_model_exclude_unset=True)
    async def replay_session(
        principal: Annotated[Principal, caller], id: Annotated[str, known], body: ReplayBody
    ) -> JsonObject:
        """Replay a recorded session in a new one. Model and tools answer from the recording; a miss fails."""
        recording = await crib.replays.export(id)
        return (await crib.replays.replay(recording, body.request(principal))).to_json()

    @router.get(
        "/{session_id}/recording",
        response_class=Response,
        responses={200: {"description": "JSON Lines.", "content": {_LINES: {"schema": {"type": "string"}}}}},
    )
    async def export_recording(id: Annotated[str, known]) -> Response:
        """Export the recording of a session with its events, to be replayed anywhere. Secrets are masked."""
        return Response(await crib.replays.export(id), media_type=_LINES)

    @router.get("/{session_id}/compare", response_model=ComparisonShape, response_model_exclude_unset=True)
    async def compare_sessions(
        id: Annotated[str, known],
        other: Annotated[str, Query(alias="with", max_length=200, description="The other session.")],
    ) -> JsonObject:
        """Compare two sessions side by side: prompts, calls, results and cost."""
        return (await crib.replays.compare(id, await crib.sessions.resolve(other))).to_json()
