"""The interpreter: killed workers and cancelled programs end cleanly."""

import anyio
import psutil
import pytest

from toolcrib.gate.programs import interpreter
from toolcrib.gate.programs.interpreter import ProgramError, ProgramInterpreter

pytestmark = pytest.mark.anyio
STUBS = "from typing import Any\nasync def wait() -> Any: ..."


async def test_killed_worker_is_an_error_and_the_next_program_runs() -> None:
    box = ProgramInterpreter()
    before = set(psutil.Process().children(recursive=True))
    try:
        async with box.running("await wait()", STUBS) as program:
            (call,) = await program.start()
            for child in set(psutil.Process().children(recursive=True)) - before:
                child.kill()
            with pytest.raises(ProgramError, match="crashed"):
                await program.resume({call.id: 1})
        async with box.running("1 + 1", "") as program:
            assert await program.start() == []
            assert program.value == 2
    finally:
        await box.close()
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_cancelled_computation_frees_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "TURN_SECONDS", 0.5)
    box = ProgramInterpreter()
    try:
        with anyio.move_on_after(0.1) as scope:
            async with box.running("while True:\n    pass", "") as program:
                await program.start()
        assert scope.cancelled_caught
        async with box.running("1 + 1", "") as program:
            await program.start()
            assert program.value == 2
    finally:
        await box.close()
