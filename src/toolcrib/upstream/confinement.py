"""What surrounds the process of one server: its sandbox, the proxy for its hosts, or the tracer that records it.

One `Confinement` belongs to one server definition and is shared by all its connections. It keeps what the sandbox
refused, and what was recorded.

Must never start a server without a sandbox that the owner chose, or record one without a tracer.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from secrets import token_hex

import anyio.to_thread

from toolcrib.base.network.host_proxy import HostProxy, parse_host
from toolcrib.base.processes.connect_guard import ConnectGuard
from toolcrib.base.processes.pipes import PipeReader
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.base.processes.trace import tracer, tracer_support
from toolcrib.model.errors import ConfigError, InvalidRequest
from toolcrib.model.problems import Problem
from toolcrib.model.sandbox import RefusedAccess, Sandbox, SandboxGrants
from toolcrib.model.servers import ResolvedServer, ServerSpec
from toolcrib.servers.masking import mask_text
from toolcrib.servers.sandbox import unsupported
from toolcrib.upstream.learning import AccessRecorder, LearnedAccess
from toolcrib.upstream.refusals import Refusals, refusal_problem
from toolcrib.upstream.sandbox_grants import SandboxDeps, grant

_REMAINDER = 4 * 1024 * 1024


class Confinement:
    """The sandbox of one server. `on_change` is called when something new was refused."""

    def __init__(self, spec: ServerSpec, deps: SandboxDeps | None, on_change: Callable[[], None]) -> None:
        self._spec = spec
        self._deps = deps
        self._on_change = on_change
        self._refusals = Refusals()
        self._grants: SandboxGrants | None = None
        self._recorder = AccessRecorder(mask_text) if spec.sandbox.profile == "learn" else None

    @property
    def refused(self) -> tuple[RefusedAccess, ...]:
        """What the sandbox refused lately."""
        return self._refusals.all()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The same for people."""
        return tuple(refusal_problem(self._spec, access) for access in self._refusals.all())

    @property
    def learned(self) -> LearnedAccess | None:
        """What was recorded; None without the profile `learn`."""
        return self._recorder.result() if self._recorder is not None else None

    def read(self, texts: Iterable[str]) -> None:
        """Look for refusals in texts of the server."""
        if self._grants is not None and self._refusals.read(texts, self._grants):
            self._on_change()

    @asynccontextmanager
    async def start(self, resolved: ResolvedServer) -> AsyncGenerator[ResolvedServer]:
        """Yield what to start. Raises `sandbox.unsupported` if the owner chose a profile that cannot be had here."""
        spec = self._spec
        if spec.sandbox.profile == "off":
            yield resolved
            return
        if self._deps is None or not await anyio.to_thread.run_sync(self._is_supported):
            if spec.sandbox.chosen:
                problem = unsupported(spec)
                raise ConfigError(problem.code, problem.message, problem.hint)
            yield resolved  # the list reports it
            return
        async with AsyncExitStack() as stack:
            if self._recorder is not None:
                yield await self._record(self._recorder, resolved, self._deps, stack)
            else:
                yield await self._confine(resolved, self._deps, stack)

    def _is_supported(self) -> bool:
        return tracer_support().program is not None if self._recorder is not None else sandbox_support().is_supported

    async def _confine(self, resolved: ResolvedServer, deps: SandboxDeps, stack: AsyncExitStack) -> ResolvedServer:
        confined = await anyio.to_thread.run_sync(grant, self._spec, resolved, deps)
        assert confined.sandbox is not None
        self._grants = confined.sandbox
        if confined.sandbox.network != "hosts":
            return confined
        try:
            hosts = [parse_host(each) for each in self._spec.sandbox.hosts]
        except InvalidRequest as error:
            raise ConfigError("sandbox.invalid", error.message, error.hint) from None
        proxy = await stack.enter_async_context(HostProxy(hosts, self._asked_for))
        guard = await stack.enter_async_context(ConnectGuard(("127.0.0.1", proxy.port), self._on_dial))
        grants = replace(confined.sandbox, port=proxy.port, guard=guard.channel)
        return replace(confined, env={**confined.env, **proxy.variables()}, sandbox=grants)

    def _asked_for(self, host: str, is_reached: bool) -> None:
        if not is_reached:
            self._refuse(host)

    def _on_dial(self, address: str, port: int) -> None:
        # Port 0 is a probe for the best source address; nothing is sent.
        if port:
            self._refuse(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")

    def _refuse(self, host: str) -> None:
        if self._refusals.add(RefusedAccess("host", host)):
            self._on_change()

    async def _record(
        self, recorder: AccessRecorder, resolved: ResolvedServer, deps: SandboxDeps, stack: AsyncExitStack
    ) -> ResolvedServer:
        """Return what to start under the tracer, with the variables that it would have in a sandbox."""
        pipe = deps.root / f"{token_hex(8)}.trace"

        def prepare() -> tuple[ResolvedServer, SandboxGrants, SandboxGrants, FileIO]:
            project = grant(replace(self._spec, sandbox=Sandbox("project")), resolved, deps)
            strict = grant(replace(self._spec, sandbox=Sandbox("strict")), resolved, deps)
            assert project.sandbox is not None and strict.sandbox is not None
            for each in project.sandbox.create:
                Path(each).mkdir(mode=0o700, parents=True, exist_ok=True)
            os.mkfifo(pipe, 0o600)
            reading = FileIO(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
            return project, project.sandbox, strict.sandbox, reading

        stack.callback(pipe.unlink, missing_ok=True)
        prepared, project, strict, reading = await anyio.to_thread.run_sync(prepare)
        proxy = await stack.enter_async_context(HostProxy(None, partial(_note, recorder)))
        home = deps.environment.get("HOME") or "/nonexistent"  # the definition may name another one
        recorder.begin((project, strict), home, resolved.cwd, proxy.port)
        trace = tuple(tracer(tracer_support().program or "strace", str(pipe)))
        output = PipeReader(reading, recorder.feed, lambda: None)
        stack.callback(output.close)
        stack.callback(output.drain, _REMAINDER)
        return replace(prepared, env={**prepared.env, **proxy.variables()}, sandbox=None, trace=trace)


def _note(recorder: AccessRecorder, host: str, is_reached: bool) -> None:
    if is_reached:
        recorder.reached(host)
