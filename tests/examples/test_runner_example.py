"""The runtime of the examples keeps to what all runtimes keep to, with scripts for its model."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from examples.custom_runner import LoopRunner, ModelError, Use

from toolcrib.model.json import JsonObject
from toolcrib.testing.runners import RunnerContract, RunnerRig
from toolcrib.testing.scripted_model.reply import reply
from toolcrib.testing.scripted_model.script import Scripts


class TestLoopRunner(RunnerContract):
    """The suite."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> RunnerRig:
        scripts = Scripts()

        async def think(history: list[JsonObject]) -> AsyncIterator[str | Use]:
            said = reply(scripts, {"messages": list(history), "model": "mine"})
            if said.message is None:
                raise ModelError(said.step.refusal.message if said.step.refusal is not None else "Silence.")
            for block in said.message["content"]:
                if block["type"] == "tool_use":
                    yield Use(block["name"], block["input"])
                    continue
                text, size = block["text"], said.step.pace.chunk
                for start in range(0, len(text), size):
                    yield text[start : start + size]
                    await anyio.sleep(said.step.pace.chunk_delay_ms / 1000)

        return RunnerRig(LoopRunner(think), scripts.__setitem__, cwd=str(tmp_path))
