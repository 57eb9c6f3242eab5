"""Failures between Claude Code and the API: each has a code, a message and a hint."""

from pathlib import Path

import pytest

from long_tests import takes_long
from toolcrib.agents.sessions.claude.runtime import ClaudeRuntime
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.testing.recording_host import RecordingHost
from toolcrib.testing.runner_rig import RunnerRig, prompt, say

pytestmark = [pytest.mark.anyio, takes_long]


@pytest.mark.parametrize(
    ("status", "error", "message", "code"),
    [
        (401, "authentication_error", "invalid x-api-key", "runner.key"),
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", "runner.credit"),
        (429, "rate_limit_error", "This request would exceed your rate limit", "runner.rate"),
        (529, "overloaded_error", "Overloaded", "runner.overloaded"),
        (500, "api_error", "Internal server error", "runner.overloaded"),
        (404, "not_found_error", "model: claude-unknown", "runner.model"),
        (400, "invalid_request_error", "Something else is wrong.", "runner.failed"),
    ],
)
async def test_api_errors_have_different_codes(
    rig: RunnerRig, status: int, error: str, message: str, code: str
) -> None:
    host = RecordingHost()
    refusal: JsonObject = {"status": status, "error": error, "message": message}
    rig.script("s", [refusal])
    rig.script("next", [say("I am here.")])
    async with rig.open(host) as conversation:
        end = await conversation.turn(prompt("s"))
        assert (end.reason, end.is_alive) == ("failed", True)
        assert end.failure is not None
        assert end.failure.code == code
        assert end.failure.hint
        assert host.of("text_message") == [], "an API error is no answer of the model"
        assert (await conversation.turn(prompt("next"))).reason == "completed"


@pytest.mark.parametrize(
    ("variables", "code"),
    [({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, "runner.unreachable"), ({"ANTHROPIC_API_KEY": ""}, "runner.login")],
)
async def test_unreachable_api_and_missing_sign_in_have_different_codes(
    rig: RunnerRig,
    claude_environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    code: str,
) -> None:
    environment = Environment({**claude_environment, **variables})
    other = RunnerRig(ClaudeRuntime(environment, tmp_path / "other"), rig.script, rig.cwd, model=rig.model)
    end = await other.answer(RecordingHost(), say("never"))
    assert end.failure is not None
    assert (end.failure.code, end.failure.hint is not None) == (code, True)


async def test_retried_requests_are_reported(rig: RunnerRig, claude_environment: Environment, tmp_path: Path) -> None:
    environment = Environment({**claude_environment, "CLAUDE_CODE_MAX_RETRIES": "1"})
    other = RunnerRig(ClaudeRuntime(environment, tmp_path / "other"), rig.script, rig.cwd, model=rig.model)
    host = RecordingHost()
    end = await other.answer(host, {"status": 529, "error": "overloaded_error", "message": "Overloaded"})
    assert end.reason == "failed"
    (error,) = host.of("error")
    assert error.data["code"] == "runner.overloaded"
    assert error.data["message"].endswith("Retrying, attempt 1 of 1.")
