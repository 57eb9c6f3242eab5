"""Sandboxed servers: real processes that are refused what their profile does not allow."""

import os
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from integration.upstream.stdio.harness import until_dead
from integration.upstream.upstream.harness import Yard, call, found, open_yard, text_of, upstream_spec
from toolcrib.base.processes import sandbox as processes_sandbox
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.sandbox import SandboxSupport, sandbox_support
from toolcrib.model.sandbox import Sandbox
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.upstream import opener
from toolcrib.upstream.source import UpstreamSource

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox."),
]


@pytest.fixture
async def yard(processes: Processes, tmp_path: Path) -> AsyncGenerator[Yard]:
    """A pool whose servers can have a sandbox."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "user")}
    async with open_yard(processes, tmp_path, environment=environment, sandboxes=tmp_path / "crib" / "tmp") as opened:
        yield opened


@pytest.fixture
def port() -> Iterator[str]:
    """A port of this machine that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield str(listening.getsockname()[1])


def project_spec(folder: Path, sandbox: Sandbox) -> ServerSpec:
    """A server of a project that has a file, beside the user's own files."""
    project, private = folder / "user" / "project", folder / "user" / ".ssh"
    for directory in (project, private):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "file").write_text(f"of {directory.name}")
    source = DefinitionSource("claude-code", "project", "mcp.json", project=str(project), directory=str(project))
    return replace(upstream_spec("touches"), source=source, cwd=str(project), sandbox=sandbox)


async def tried(source: UpstreamSource, tool: str, target: Path | str = "") -> str:
    """What a tool says, or that it was refused."""
    result = await call(source, tool, target=str(target))
    assert not result.is_error or "denied" in text_of(result) or "not permitted" in text_of(result), text_of(result)
    return "refused" if result.is_error else text_of(result)


async def test_project_profile_allows_the_project_and_the_network_only(yard: Yard, tmp_path: Path, port: str) -> None:
    source = await yard.ready(project_spec(tmp_path, Sandbox("project")))
    inside, outside = tmp_path / "user" / "project", tmp_path / "user" / ".ssh"
    assert await tried(source, "read", inside / "file") == "of project"
    assert await tried(source, "write", inside / "new") == "written"
    assert await tried(source, "connect", port) == "connected"
    assert (await tried(source, "temporary")).startswith(str(tmp_path / "crib" / "tmp"))
    assert await tried(source, "read", outside / "file") == "refused"
    assert await tried(source, "write", outside / "new") == "refused"
    assert await tried(source, "read", f"/proc/{os.getpid()}/environ") == "refused"
    child = await call(source, "spawn", target=str(outside / "file"))
    assert child.is_error


async def test_strict_profile_refuses_writing_and_the_network(yard: Yard, tmp_path: Path, port: str) -> None:
    source = await yard.ready(project_spec(tmp_path, Sandbox("strict", chosen=True)))
    project = tmp_path / "user" / "project"
    assert await tried(source, "read", project / "file") == "of project"
    assert await tried(source, "write", project / "new") == "refused"
    assert await tried(source, "connect", port) == "refused"
    assert await tried(source, "send", port) == "refused"
    assert (await tried(source, "temporary")).startswith(str(tmp_path / "crib" / "tmp"))


async def test_a_refusal_is_a_problem_until_the_owner_allows_it(yard: Yard, tmp_path: Path) -> None:
    spec = project_spec(tmp_path, Sandbox("project"))
    source = await yard.ready(spec)
    wanted = tmp_path / "user" / ".ssh"
    await tried(source, "read", wanted / "file")
    (problem,) = source.status.problems
    assert problem.code == "sandbox.refused"
    assert str(wanted / "file") in problem.message
    assert f"toolcrib mcp sandbox touches` with `--read {wanted / 'file'}" in (problem.hint or "")
    allowed = replace(spec, sandbox=Sandbox("project", chosen=True, read=(str(wanted),)))
    yard.pool.reconcile(None, found(allowed))
    source = yard.source("touches")
    assert await tried(source, "read", wanted / "file") == "of .ssh"
    assert await tried(source, "write", wanted / "new") == "refused"
    assert [access.kind for access in source.status.refused] == ["write"]


async def test_a_sandboxed_server_ends_like_any_other(yard: Yard, tmp_path: Path) -> None:
    source = await yard.ready(project_spec(tmp_path, Sandbox("strict", chosen=True)))
    pid = source.status.pid
    assert pid is not None
    command = psutil.Process(pid).cmdline()
    assert command[0] == sys.executable  # the launcher has become the server
    assert "upstreams.touches" in command
    yard.pool.reconcile(None, found())
    await until_dead(pid)


async def test_a_missing_command_is_reported_as_without_a_sandbox(yard: Yard, tmp_path: Path) -> None:
    spec = replace(project_spec(tmp_path, Sandbox("project")), command="no-such-program")
    yard.pool.reconcile(None, found(spec))
    source = await yard.until_state("touches", "failed")
    assert 'command "no-such-program" not found' in source.status.sentence


async def test_a_chosen_profile_that_cannot_be_enforced_does_not_start(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SandboxSupport(False, "This kernel has no Landlock.")
    for module in (opener, processes_sandbox):
        monkeypatch.setattr(module, "sandbox_support", lambda: nothing)
    yard.pool.reconcile(None, found(project_spec(tmp_path, Sandbox("strict", chosen=True))))
    source = await yard.until_state("touches", "failed")
    assert "cannot be enforced" in source.status.sentence
    by_default = await yard.ready(project_spec(tmp_path, Sandbox("project")))
    assert await tried(by_default, "read", tmp_path / "user" / ".ssh" / "file") == "of .ssh"
