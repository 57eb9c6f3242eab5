"""The interpreter of programs: pydantic-monty, Python in worker processes without files, network or imports.

A worker is started when the first program runs. Each step of a program runs in a thread, so the event loop is never
blocked. Programs are deterministic: clock and random numbers are fixed, and sleeping takes no time.

This is the only module that uses pydantic-monty. It is loaded on first use, because it is an optional extra. Coroutines
are never passed to it: they abort the interpreter at exit.
"""

import importlib
from collections.abc import AsyncGenerator, Callable, Container, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from toolcrib.model.errors import Unavailable

SECONDS: Final = 10.0
"""Seconds of execution, without the time that calls take."""
TURN_SECONDS: Final = 4.0
"""Seconds of execution between two calls. A cancelled program ends after at most this time."""
MEMORY: Final = 128 * 1_048_576
RECURSION: Final = 300
MOST_CALLS: Final = 1_000
"""Calls, lookups and waits of one run."""
MOST_OUTPUT: Final = 10 * 1_048_576
"""Bytes of printed output."""
WORKERS: Final = 4
_WATCHDOG: Final = 30.0
"""Seconds until a worker that does not answer is killed."""


class ProgramError(Exception):
    """Raised when a program fails: the message is what its author needs, such as a traceback or type errors."""


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A call that a program waits for."""

    id: int
    function: str
    positional: tuple[Any, ...]
    arguments: Mapping[str, Any]


class RunningProgram:
    """One run of a program, from one set of calls to the next."""

    def __init__(self, monty: Any, session: Any, code: str, functions: Container[str]) -> None:
        self._monty = monty
        self._functions = functions
        self._session = session
        self._code = code
        self._printed = monty.CollectString(max_bytes=MOST_OUTPUT)
        self._wanted: dict[int, WantedCall] = {}
        self._snapshot: Any = None
        self.value: Any = None

    @property
    def output(self) -> str:
        """What the program has printed."""
        return self._printed.output

    async def start(self) -> list[WantedCall]:
        """Run until the program waits for calls. Returns them, or an empty list at its end. Raises `ProgramError`."""
        return await self._step(partial(self._session.feed_start, self._code, print_callback=self._printed))

    async def resume(self, results: Mapping[int, Any]) -> list[WantedCall]:
        """Continue with results by call id: a value, or an exception to raise."""
        settled = {
            number: {"exception": value} if isinstance(value, Exception) else {"return_value": value}
            for number, value in results.items()
        }
        return await self._step(partial(self._snapshot.resume, settled))

    async def _step(self, begin: Any) -> list[WantedCall]:
        try:
            return await anyio.to_thread.run_sync(self._run, begin, abandon_on_cancel=True)
        except self._monty.MontyError as error:
            raise ProgramError(_text_of(error)) from error

    def _run(self, begin: Any) -> list[WantedCall]:
        monty = self._monty
        snapshot = begin()
        while not isinstance(snapshot, monty.MontyComplete):
            if isinstance(snapshot, monty.FutureSnapshot):
                self._snapshot = snapshot
                return [self._wanted.pop(number) for number in snapshot.pending_call_ids]
            if isinstance(snapshot, monty.NameLookupSnapshot):
                name = snapshot.variable_name
                snapshot = (
                    snapshot.resume(value=_function_value(name)) if name in self._functions else snapshot.resume()
                )
            elif snapshot.is_os_function:
                snapshot = snapshot.resume_not_handled()
            else:
                call = WantedCall(snapshot.call_id, snapshot.function_name, snapshot.args, snapshot.kwargs)
                self._wanted[call.id] = call
                snapshot = snapshot.resume({"future": ...})
        self.value = snapshot.output
        return []


class ProgramInterpreter:
    """The pool of workers. `async with` owns them."""

    def __init__(self) -> None:
        self._monty: Any = None
        self._pool: Any = None
        self._opening = anyio.Lock()

    async def close(self) -> None:
        """End all workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(pool.__exit__, None, None, None))

    @asynccontextmanager
    async def running(self, code: str, stubs: str, functions: Container[str] = ()) -> AsyncGenerator[RunningProgram]:
        """Provide a worker for one run of a program. `stubs` declare the `functions` that it may call."""
        pool = await self._open()
        session = pool.checkout(
            limits={
                "max_feed_duration_secs": SECONDS,
                "max_turn_duration_secs": TURN_SECONDS,
                "max_memory": MEMORY,
                "max_recursion_depth": RECURSION,
                "max_suspensions": MOST_CALLS,
            },
            os_policy={
                "datetime": datetime.now(UTC).replace(microsecond=0),
                "sleep": "zero",
                "random_start": {"seed": 0},
            },
            type_check=True,
            type_check_stubs=stubs,
        )
        await anyio.to_thread.run_sync(session.__enter__)
        try:
            yield RunningProgram(self._monty, session, code, functions)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(session.__exit__, None, None, None))

    async def _open(self) -> Any:
        async with self._opening:
            if self._pool is None:
                try:
                    self._monty = await anyio.to_thread.run_sync(importlib.import_module, "pydantic_monty")
                except ImportError as error:
                    message = "Code mode is not installed."
                    raise Unavailable("code.missing", message, "pip install 'toolcrib[monty]'") from error
                pool = self._monty.Monty(min_processes=0, max_processes=WORKERS, request_timeout=_WATCHDOG)
                await anyio.to_thread.run_sync(pool.__enter__)
                self._pool = pool
            return self._pool


def _function_value(name: str) -> Callable[..., None]:
    """Return what stands for a function that a program uses as a value. The interpreter asks for its calls by name."""

    def function() -> None: ...

    function.__name__ = name
    return function


def _text_of(error: Any) -> str:
    """Return what a model can act on: type errors and tracebacks in full, anything else as a message."""
    display = getattr(error, "display", None)
    return str(display() if display is not None else error).strip()
