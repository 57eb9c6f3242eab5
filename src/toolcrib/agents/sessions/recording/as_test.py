"""Turns a recording into a test: the source of a pytest module that replays it with `toolcrib.testing`."""

from pprint import pformat

from toolcrib.agents.sessions.recording.comparison import run_of_events
from toolcrib.agents.sessions.recording.recording import Recording

_SOURCE = '''"""Replays a session: the model and the tools answer from the recording beside this file."""

from pathlib import Path

import pytest

from toolcrib.testing.replay import replay_session

RECORDING = Path(__file__).with_suffix(".jsonl")
CALLS = {calls}
ANSWER = {answer}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_session_plays_as_recorded() -> None:
    outcome = await replay_session(RECORDING)
    assert outcome.failure is None
    assert outcome.run.calls == CALLS
    assert outcome.run.texts[-1:] == ANSWER
'''


def module_source(recording: Recording) -> str:
    """Return the source of a test that expects the recorded calls and the last answer."""
    run = run_of_events(recording.session, recording.events)
    calls = pformat(run.calls, width=110, sort_dicts=False)
    return _SOURCE.format(calls=calls, answer=repr(run.texts[-1:]))
