"""The contract of tool sources, on Python functions and on a real upstream server."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.upstream.upstream.harness import open_harness, upstream_spec
from toolcrib import ToolServer, tool
from toolcrib.base.processes.process import Processes
from toolcrib.base.settings import Environment
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.sources import SourceContract, SourceRig
from toolcrib.tools import PythonSource


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@tool
async def fail() -> str:
    """Raise."""
    raise ValueError("It went wrong.")


@tool
async def hang() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return ""


class TestPythonSource(SourceContract):
    @pytest.fixture
    async def rig(self) -> AsyncGenerator[SourceRig]:
        async with PythonSource(ToolServer("lab", tools=[echo, fail, hang])) as source:
            yield SourceRig(source, echo="echo", fails="fail", hangs="hang", wrong={"text": 3})


class TestUpstreamSource(SourceContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncGenerator[SourceRig]:
        environment: Environment = bare_environment(tmp_path)
        async with (
            Processes(environment, "crib-under-test", tmp_path / "children.json") as processes,
            open_harness(processes, tmp_path) as harness,
        ):
            source = await harness.connect(upstream_spec("legacy", "plain"))
            yield SourceRig(source, echo="echo", fails="exit", hangs="sleep")
