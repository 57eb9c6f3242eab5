"""The example runtime passes the contract of runtimes, with a scripted model."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from examples.custom_runner import LoopRunner, ModelError, ToolUse

from toolcrib.model.json import JsonObject
from toolcrib.testing.runners import RunnerContract, RunnerRig
from toolcrib.testing.scripted_model.reply import reply
from toolcrib.testing.scripted_model.script import Scripts


class TestLoopRunner(RunnerContract):
    """Run the contract of runtimes."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> RunnerRig:
        scripts = Scripts()

        async def model(history: list[JsonObject]) -> AsyncIterator[str | ToolUse]:
            answer = reply(scripts, {"messages": list(history), "model": "scripted"})
            if answer.message is None:
                raise ModelError(answer.step.refusal.message if answer.step.refusal is not None else "Silence.")
            for block in answer.message["content"]:
                if block["type"] == "tool_use":
                    yield ToolUse(block["name"], block["input"])
                    continue
                text, size = block["text"], answer.step.pace.chunk
                for start in range(0, len(text), size):
                    yield text[start : start + size]
                    await anyio.sleep(answer.step.pace.chunk_delay_ms / 1000)

        return RunnerRig(LoopRunner(model), scripts.__setitem__, cwd=str(tmp_path))
