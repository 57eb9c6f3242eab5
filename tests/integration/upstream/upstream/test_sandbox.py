"""Sandboxed servers: real processes whose profile denies what it does not allow."""

import os
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest

from integration.upstream.stdio.harness import until_dead
from integration.upstream.upstream.harness import PoolHarness, call, discovery_of, open_harness, text_of, upstream_spec
from toolcrib.base.processes import sandbox as processes_sandbox
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.sandbox import SandboxSupport, sandbox_support
from toolcrib.base.processes.trace import tracer_support
from toolcrib.model.sandbox import Sandbox, SandboxProfile
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.upstream import confinement
from toolcrib.upstream.source import UpstreamSource

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox."),
]


@pytest.fixture
async def harness(processes: Processes, tmp_path: Path) -> AsyncGenerator[PoolHarness]:
    """A pool whose servers can have a sandbox."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "user")}
    async with open_harness(
        processes, tmp_path, environment=environment, sandboxes=tmp_path / "crib" / "tmp"
    ) as opened:
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
    return replace(upstream_spec("system_access"), source=source, cwd=str(project), sandbox=sandbox)


async def outcome(source: UpstreamSource, tool: str, target: Path | str = "") -> str:
    """Return the text of a result, or "refused" if access was denied."""
    result = await call(source, tool, target=str(target))
    assert not result.is_error or "denied" in text_of(result) or "not permitted" in text_of(result), text_of(result)
    return "refused" if result.is_error else text_of(result)


async def test_project_profile_allows_the_project_and_the_network_only(
    harness: PoolHarness, tmp_path: Path, port: str
) -> None:
    source = await harness.connect(project_spec(tmp_path, Sandbox("project")))
    inside, outside = tmp_path / "user" / "project", tmp_path / "user" / ".ssh"
    assert await outcome(source, "read", inside / "file") == "of project"
    assert await outcome(source, "write", inside / "new") == "written"
    assert await outcome(source, "connect", port) == "connected"
    assert (await outcome(source, "temporary")).startswith(str(tmp_path / "crib" / "tmp"))
    assert await outcome(source, "read", outside / "file") == "refused"
    assert await outcome(source, "write", outside / "new") == "refused"
    assert await outcome(source, "read", f"/proc/{os.getpid()}/environ") == "refused"
    child = await call(source, "spawn", target=str(outside / "file"))
    assert child.is_error


async def test_strict_profile_refuses_writing_and_the_network(harness: PoolHarness, tmp_path: Path, port: str) -> None:
    source = await harness.connect(project_spec(tmp_path, Sandbox("strict", chosen=True)))
    project = tmp_path / "user" / "project"
    assert await outcome(source, "read", project / "file") == "of project"
    assert await outcome(source, "write", project / "new") == "refused"
    assert await outcome(source, "connect", port) == "refused"
    assert await outcome(source, "send", port) == "refused"
    assert (await outcome(source, "temporary")).startswith(str(tmp_path / "crib" / "tmp"))


async def test_denied_access_is_a_problem_until_the_owner_allows_it(harness: PoolHarness, tmp_path: Path) -> None:
    spec = project_spec(tmp_path, Sandbox("project"))
    source = await harness.connect(spec)
    wanted = tmp_path / "user" / ".ssh"
    await outcome(source, "read", wanted / "file")
    (problem,) = source.status.problems
    assert problem.code == "sandbox.refused"
    assert str(wanted / "file") in problem.message
    assert f"toolcrib mcp sandbox system_access` with `--read {wanted / 'file'}" in (problem.hint or "")
    allowed = replace(spec, sandbox=Sandbox("project", chosen=True, read=(str(wanted),)))
    harness.pool.reconcile(None, discovery_of(allowed))
    source = harness.source("system_access")
    assert await outcome(source, "read", wanted / "file") == "of .ssh"
    assert await outcome(source, "write", wanted / "new") == "refused"
    assert [access.kind for access in source.status.refused] == ["write"]


async def test_sandboxed_server_ends_with_its_definition(harness: PoolHarness, tmp_path: Path) -> None:
    source = await harness.connect(project_spec(tmp_path, Sandbox("strict", chosen=True)))
    pid = source.status.pid
    assert pid is not None
    command = psutil.Process(pid).cmdline()
    assert command[0] == sys.executable  # the launcher has become the server
    assert "upstreams.system_access" in command
    harness.pool.reconcile(None, discovery_of())
    await until_dead(pid)


async def test_missing_command_is_reported_as_without_a_sandbox(harness: PoolHarness, tmp_path: Path) -> None:
    spec = replace(project_spec(tmp_path, Sandbox("project")), command="no-such-program")
    harness.pool.reconcile(None, discovery_of(spec))
    source = await harness.until_state("system_access", "failed")
    assert 'command "no-such-program" not found' in source.status.sentence


async def test_server_does_not_start_if_its_chosen_profile_cannot_be_enforced(
    harness: PoolHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SandboxSupport(False, "This kernel has no Landlock.")
    for module in (confinement, processes_sandbox):
        monkeypatch.setattr(module, "sandbox_support", lambda: nothing)
    harness.pool.reconcile(None, discovery_of(project_spec(tmp_path, Sandbox("strict", chosen=True))))
    source = await harness.until_state("system_access", "failed")
    assert "cannot be enforced" in source.status.sentence
    by_default = await harness.connect(project_spec(tmp_path, Sandbox("project")))
    assert await outcome(by_default, "read", tmp_path / "user" / ".ssh" / "file") == "of .ssh"


class _PageHandler(BaseHTTPRequestHandler):
    """A web server with one page."""

    def do_GET(self) -> None:
        """Answer with the path."""
        body = f"page {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    """The address of a page on this machine, as host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _PageHandler) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{serving.server_port}"
        serving.shutdown()


async def test_allowed_hosts_are_reached_only_through_the_proxy(
    harness: PoolHarness, tmp_path: Path, page: str
) -> None:
    other = socket.create_server(("127.0.0.1", 0))
    with other:
        denied = str(other.getsockname()[1])
        source = await harness.connect(project_spec(tmp_path, Sandbox("strict", chosen=True, hosts=(page,))))
        assert await call_text(source, "fetch", f"http://{page}/x?y=1") == "page /x?y=1"
        assert "403" in await call_text(source, "fetch", f"http://127.0.0.1:{denied}/")
        assert "403" in await call_text(source, "fetch", "http://unlisted.example/")
        assert await outcome(source, "connect", denied) == "refused"
        assert (
            await outcome(source, "connect", page.partition(":")[2]) == "refused"
        )  # listed, but not through the proxy
        assert await outcome(source, "send", denied) == "refused"
    assert {access.target for access in source.status.refused if access.kind == "host"} == {
        f"127.0.0.1:{denied}",
        "unlisted.example",
        page,
    }
    problem = next(each for each in source.status.problems if "unlisted" in each.message)
    assert "`--allow-host unlisted.example`" in (problem.hint or "")


async def test_other_network_access_is_denied_with_a_host_list(harness: PoolHarness, tmp_path: Path, page: str) -> None:
    source = await harness.connect(project_spec(tmp_path, Sandbox("project", chosen=True, hosts=("example.com",))))
    port = page.partition(":")[2]
    attempts = {
        "fast open": f"s = socket.socket(); result = s.sendto(b'x', 0x20000000, ('127.0.0.1', {port}))",
        "multipath": f"s = socket.socket(2, 1, 262); result = s.connect(('127.0.0.1', {port}))",
        "raw": "result = socket.socket(2, 3, 1)",
        "packet": "result = socket.socket(17, 3)",
        "machine": "result = socket.socket(40, 1)",
        "listening": "s = socket.socket(); result = s.listen()",
        "binding": "s = socket.socket(); result = s.bind(('127.0.0.1', 0))",
    }
    for name, code in attempts.items():
        assert await outcome(source, "run", f"import socket\n{code}") == "refused", name


_LOCAL_SOCKETS = {
    "path": "s = socket.socket(socket.AF_UNIX); s.connect({path!r}); result = 'reached'",
    "abstract": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + {name!r}); result = 'reached'",
    "pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', {path!r}); result = 'reached'",
}


@pytest.mark.parametrize("profile", ["project", "strict"])
async def test_local_sockets_kernel_keys_and_other_processes_are_out_of_reach(
    harness: PoolHarness, tmp_path: Path, profile: SandboxProfile
) -> None:
    source = await harness.connect(project_spec(tmp_path, Sandbox(profile, chosen=True)))
    # In the project, which the server may write: file permissions do not protect it.
    path, name = str(tmp_path / "user" / "project" / "s"), f"toolcrib-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as agent, socket.socket(socket.AF_UNIX) as bus:
        agent.bind(path)
        bus.bind("\0" + name)
        agent.listen()
        bus.listen()
        for kind, code in _LOCAL_SOCKETS.items():
            code_to_run = f"import socket\n{code.format(path=path, name=name)}"
            assert await outcome(source, "run", code_to_run) == "refused", kind
        pair = "import socket\na, b = socket.socketpair(); a.send(b'x'); result = b.recv(1)"
        assert await outcome(source, "run", pair) == "b'x'"  # what event loops need
    keys = "import ctypes\nresult = ctypes.CDLL(None).syscall(250, 0, -4, 0)"
    assert await outcome(source, "run", keys) == "-1"
    shared = "import ctypes\nresult = ctypes.CDLL(None).shmget(4711, 4096, 0o1600)"
    assert await outcome(source, "run", shared) == "-1"
    renicing = ("os.setpriority(0, os.getppid(), 19)", "os.setpriority(os.PRIO_USER, 0, 19)")
    for others in (*renicing, "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)"):
        assert await outcome(source, "run", f"import os, resource\n{others}\nresult = 'reached'") == "refused", others
    own = "import resource\nresource.prlimit(0, resource.RLIMIT_CORE, (0, 0))\nresult = 'set'"
    assert await outcome(source, "run", own) == "set"
    assert await outcome(source, "run", "import os\nos.chroot('/usr')\nresult = 'reached'") == "refused"


async def test_writable_socket_path_allows_local_sockets(harness: PoolHarness, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(path)
        agent.listen()
        source = await harness.connect(project_spec(tmp_path, Sandbox("project", chosen=True, write=(path,))))
        code = f"import socket\n{_LOCAL_SOCKETS['path'].format(path=path)}"
        assert await outcome(source, "run", code) == "reached"


async def call_text(source: UpstreamSource, tool: str, target: str) -> str:
    """Return the text of a result or an error."""
    return text_of(await call(source, tool, target=target))


@pytest.mark.skipif(tracer_support().program is None, reason="This system has no tracer.")
async def test_learn_mode_proposes_what_the_server_used(harness: PoolHarness, tmp_path: Path, page: str) -> None:
    spec = project_spec(tmp_path, Sandbox("learn", chosen=True))
    source = await harness.connect(spec)
    user = tmp_path / "user"
    notes, data = user / "notes", user / "data"
    for directory in (notes, data):
        directory.mkdir()
    for number in range(4):
        (notes / f"n{number}").write_text("note")
        assert await call_text(source, "read", str(notes / f"n{number}")) == "note"
    (data / "a single file").write_text("data")
    await call_text(source, "read", str(data / "a single file"))
    await call_text(source, "write", str(data / "out.txt"))
    await call_text(source, "read", str(user / ".ssh" / "file"))
    await call_text(source, "read", str(user / "project" / "file"))
    await call_text(source, "spawn", str(data / "a single file"))
    hidden = "\x1b[31m"
    await call_text(source, "write", str(data / hidden))
    await call_text(source, "fetch", f"http://{page}/x")
    source.upstream.restart()  # so that all output of the tracer has been read
    await harness.until(lambda: source.status.pid is not None and source.status.state == "connected")
    learned = source.status.learned
    assert learned is not None
    proposal = learned["proposal"]
    assert [path for path in proposal["read"] if path.startswith(str(user))] == [
        str(data / "a single file"),
        str(notes),
    ]
    assert proposal["write"] == [str(data / "out.txt")]
    assert (proposal["profile"], proposal["hosts"], learned["direct"]) == ("strict", [page], [])
    assert learned["credentials"] == [str(user / ".ssh" / "file")]
    assert learned["leftOut"] == 1


@pytest.mark.skipif(tracer_support().program is None, reason="This system has no strace.")
async def test_learn_mode_does_not_propose_the_home_if_the_definition_sets_another(
    harness: PoolHarness, tmp_path: Path
) -> None:
    spec = project_spec(tmp_path, Sandbox("learn", chosen=True))
    source = await harness.connect(replace(spec, env={**spec.env, "HOME": str(tmp_path / "other")}))
    user = tmp_path / "user"
    for number in range(4):
        (user / f"n{number}").write_text("note")
        assert await call_text(source, "read", str(user / f"n{number}")) == "note"
    source.upstream.restart()  # so that all output of the tracer has been read
    await harness.until(lambda: source.status.pid is not None and source.status.state == "connected")
    assert source.status.learned is not None
    proposed = source.status.learned["proposal"]["read"]
    assert str(user) not in proposed and str(user / "n0") in proposed
