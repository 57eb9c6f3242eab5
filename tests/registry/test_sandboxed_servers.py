"""Third-party servers in a sandbox: they work inside it, and the sandbox refuses everything else."""

import os
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anyio
import pytest

from integration.upstream.upstream.harness import PoolHarness, call, discovery_of, open_harness
from long_tests import takes_long
from programs import ROOT
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.model.sandbox import Sandbox
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.source import UpstreamSource

pytestmark = [
    pytest.mark.anyio,
    takes_long,
    pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox."),
]

PROJECT = Sandbox("project")
STRICT = Sandbox("strict", chosen=True)
PYTHON = os.path.realpath(sys.executable)


class Machine:
    """A user with a project, a private key, and servers that can run in a sandbox."""

    def __init__(self, root: Path, harness: PoolHarness) -> None:
        self.home = root / "user"
        self.project = self.home / "project"
        self.private = self.home / ".ssh" / "id_ed25519"
        self._harness = harness
        for file, text in ((self.project / "note.txt", "inside"), (self.private, "a private key")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    async def started(self, sandbox: Sandbox, command: str, *args: str, **env: str) -> UpstreamSource:
        """Start a server of the project and wait until it is connected."""
        place = str(self.project)
        source = DefinitionSource("claude-code", "project", "mcp.json", project=place, directory=place)
        spec = ServerSpec("x", "stdio", source, command=command, args=args, env=env, cwd=place, sandbox=sandbox)
        self._harness.pool.reconcile(None, discovery_of(replace(spec, alias="x")))
        server = self._harness.source("x")
        await server.upstream.check()  # its tools may be known from an earlier start
        assert server.status.state == "connected", server.status
        return server


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncGenerator[Machine]:
    """Create a machine."""
    tools = f"{ROOT / '.tools' / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": tools, "HOME": str(tmp_path / "user")}
    sandboxes = tmp_path / "crib" / "tmp"
    async with (
        Processes(environment, "crib-under-test", tmp_path / "children.json") as processes,
        open_harness(processes, tmp_path, environment=environment, sandboxes=sandboxes, timing=Timing()) as opened,
    ):
        yield Machine(tmp_path, opened)


async def outcome(source: UpstreamSource, tool: str, **arguments: object) -> tuple[bool, str]:
    """Return whether a call succeeded, and its text."""
    result = await call(source, tool, None, **arguments)
    return not result.is_error, "\n".join(str(block.get("text", "")) for block in result.content)


@pytest.mark.parametrize("sandbox", [PROJECT, STRICT], ids=lambda sandbox: sandbox.profile)
async def test_filesystem_server_is_confined_to_its_folder(
    node_programs: Path, machine: Machine, sandbox: Sandbox
) -> None:
    # The server itself would allow the whole home.
    words = (str(machine.project), str(machine.home))
    source = await machine.started(sandbox, str(node_programs / "mcp-server-filesystem"), *words)
    assert await outcome(source, "read_text_file", path=str(machine.project / "note.txt")) == (True, "inside")
    wrote, _ = await outcome(source, "write_file", path=str(machine.project / "new.txt"), content="x")
    assert wrote is (sandbox.profile == "project")
    read, text = await outcome(source, "read_text_file", path=str(machine.private))
    assert (read, "a private key" in text) == (False, False)
    outside, _ = await outcome(source, "write_file", path=str(machine.home / "planted"), content="x")
    assert (outside, (machine.home / "planted").exists()) == (False, False)
    link = machine.project / "link"
    link.symlink_to(machine.private)
    assert not (await outcome(source, "read_text_file", path=str(link)))[0]
    refused = {(access.kind, access.target) for access in source.status.refused}
    assert ("read", str(machine.private)) in refused


@pytest.mark.parametrize("sandbox", [PROJECT, STRICT], ids=lambda sandbox: sandbox.profile)
async def test_git_server_is_confined_to_its_repository(
    python_servers: Path, machine: Machine, sandbox: Sandbox
) -> None:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    other = machine.home / "other"
    other.mkdir()
    for folder in (machine.project, other):
        for words in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "--message", "A first step")):
            variables = {"PATH": "/usr/bin:/bin", "HOME": str(machine.home)}
            await anyio.run_process(["git", *identity, *words], cwd=folder, env=variables)
    source = await machine.started(sandbox, str(python_servers / "mcp-server-git"))
    works, text = await outcome(source, "git_log", repo_path=str(machine.project))
    assert (works, "A first step" in text) == (True, True), text
    added, _ = await outcome(source, "git_add", repo_path=str(machine.project), files=["note.txt"])
    assert added is (sandbox.profile == "project")
    works, text = await outcome(source, "git_log", repo_path=str(other))
    assert (works, "A first step" in text) == (False, False)


@pytest.mark.parametrize("sandbox", [PROJECT, STRICT], ids=lambda sandbox: sandbox.profile)
async def test_time_server_works_in_a_sandbox(python_servers: Path, machine: Machine, sandbox: Sandbox) -> None:
    source = await machine.started(sandbox, str(python_servers / "mcp-server-time"), "--local-timezone", "UTC")
    arguments = {"source_timezone": "Europe/Berlin", "time": "14:30", "target_timezone": "Asia/Tokyo"}
    works, text = await outcome(source, "convert_time", **arguments)
    assert (works, "Asia/Tokyo" in text) == (True, True)
    assert source.status.problems == ()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><article><h1>News</h1><p>The crib is open.</p></article></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    """Serve a page on this machine. Yields its host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{serving.server_port}"
        serving.shutdown()


async def test_fetch_server_reaches_only_allowed_hosts(python_servers: Path, machine: Machine, page: str) -> None:
    words = (str(python_servers / "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips")
    open_ = await machine.started(PROJECT, *words)
    assert "The crib is open" in (await outcome(open_, "fetch", url=f"http://{page}/", raw=True))[1]
    closed = await machine.started(STRICT, *words)
    assert "The crib is open" not in (await outcome(closed, "fetch", url=f"http://{page}/", raw=True))[1]
    listed = await machine.started(replace(STRICT, hosts=(page,)), *words)
    assert "The crib is open" in (await outcome(listed, "fetch", url=f"http://{page}/", raw=True))[1]
    assert not (await outcome(listed, "fetch", url="http://unlisted.example/"))[0]
    assert [(access.kind, access.target) for access in listed.status.refused] == [("host", "unlisted.example")]


def _tests_folder() -> str:
    return str(ROOT / "tests")


async def _works_and_is_confined(machine: Machine, source: UpstreamSource) -> None:
    assert await outcome(source, "read", target=str(machine.project / "note.txt")) == (True, "inside")
    read, _ = await outcome(source, "read", target=str(machine.private))
    assert not read
    assert not (await outcome(source, "read", target=f"/proc/{os.getpid()}/environ"))[0]


async def test_npx_installs_into_a_cache_of_the_server_and_then_works_in_strict(machine: Machine) -> None:
    if shutil.which("npx") is None:
        pytest.skip("npx is not installed.")
    package = machine.project / "package"
    package.mkdir()
    (package / "package.json").write_text('{"name": "touching", "version": "1.0.0", "bin": {"touching": "run.js"}}')
    words = "process.env.PY, ['-S', '-m', 'upstreams.system_access'], {stdio: 'inherit'}"
    (package / "run.js").write_text(f"#!/usr/bin/env node\nrequire('child_process').spawn({words});\n")
    (package / "run.js").chmod(0o755)
    variables = {"PY": sys.executable, "PYTHONPATH": _tests_folder()}
    for sandbox in (PROJECT, STRICT):
        source = await machine.started(sandbox, "npx", "--yes", "./package", **variables)
        await _works_and_is_confined(machine, source)
    assert not (machine.home / ".npm").exists()
    assert list((machine.home.parent / "crib" / "tmp").glob("*/cache/npm/_npx"))


async def test_uvx_installs_into_a_cache_of_the_server_and_then_works_in_strict(machine: Machine) -> None:
    if shutil.which("uvx", path=str(ROOT / ".tools" / "bin")) is None:
        pytest.skip("uvx is not installed.")
    wheel = machine.project / "touching-1.0.0-py3-none-any.whl"
    about = "touching-1.0.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("touching.py", "def main():\n    import upstreams.system_access\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: touching\nVersion: 1.0.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/entry_points.txt", "[console_scripts]\ntouching = touching:main\n")
        archive.writestr(f"{about}/RECORD", "")
    words = ("--python", PYTHON, "--from", f"./{wheel.name}", "touching")
    for sandbox in (PROJECT, STRICT):
        source = await machine.started(sandbox, "uvx", *words, PYTHONPATH=_tests_folder())
        await _works_and_is_confined(machine, source)
    assert not (machine.home / ".cache" / "uv").exists()


async def test_playwright_server_works_in_a_sandbox(app_programs: Path, machine: Machine, page: str) -> None:
    """The browser locks its profile with a local socket and reads /proc. Its own sandbox cannot nest in this one."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("No browser is installed.")
    words = ("--headless", "--isolated", "--no-sandbox", "--executable-path", browser)
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as listed:
        listed.bind(f"{short}/any")
        sandbox = Sandbox("project", chosen=True, read=("/proc",), write=(f"{short}/any", short))
        source = await machine.started(sandbox, str(app_programs / "playwright-mcp"), *words, TMPDIR=short)
        works, text = await outcome(source, "browser_navigate", url=f"http://{page}/")
        assert works, text
        evaluated = await outcome(source, "browser_evaluate", function="() => document.body.textContent")
        assert "The crib is open." in evaluated[1]
        await outcome(source, "browser_navigate", url=f"file://{machine.private}")
        assert "a private key" not in (await outcome(source, "browser_snapshot"))[1]
        assert not any("a private key" in file.read_text() for file in machine.project.rglob("*.yml"))
