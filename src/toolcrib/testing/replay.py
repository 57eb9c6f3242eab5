"""Replays a recorded session in a test: the model and the tools answer from the recording.

`toolcrib sessions export ID --as-test` writes such a test. It needs Claude Code, but neither a key nor network.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolcrib.agents.sessions.recording.replayed_runtime import ReplayOptions
from toolcrib.base.settings import Environment
from toolcrib.host.session_replays import ReplayOutcome, ReplayRequest
from toolcrib.testing.cribs import crib
from toolcrib.testing.environments import bare_environment


async def replay_session(
    recording: Path | str,
    *,
    tools: Sequence[Callable[..., Any]] = (),
    live_tools: bool = False,
    environment: Environment | None = None,
) -> ReplayOutcome:
    """Replay a recording in a temporary crib. `live_tools` calls `tools` instead of taking recorded results.

    The outcome has the steps (`outcome.run`) and the comparison with the recorded run (`outcome.comparison`).
    """
    lines = Path(recording).read_bytes()  # noqa: ASYNC240 a small local file, in a test
    with TemporaryDirectory(prefix="toolcrib-user-", ignore_cleanup_errors=True) as user:
        variables = environment or Environment({**bare_environment(Path(user)), "IS_SANDBOX": "1"})
        async with crib(tools, environment=variables) as opened:
            request = ReplayRequest(ReplayOptions(live_tools=live_tools))
            return await opened.replays.replay(lines, request)
