"""Servers in containers: a real engine starts them, from a client in the sandbox of its server."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from integration.upstream.upstream.harness import PoolHarness, call, discovery_of, open_harness, text_of
from long_tests import takes_long
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.model.sandbox import Sandbox
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.source import UpstreamSource

ENGINE = os.path.realpath("/var/run/docker.sock")
IMAGE = "toolcrib-test-server"
SERVER = """#!/bin/sh
while read -r line; do
  id=${line#*'"id":'}; id=${id%%[,\\}]*}
  case $line in
  *'"initialize"'*)
    r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"files","version":"1"}}' ;;
  *'"tools/list"'*) r='{"tools":[{"name":"cat","inputSchema":{"type":"object"}}]}' ;;
  *'"tools/call"'*)
    path=${line#*'"path":"'}; path=${path%%'"'*}
    if text=$(cat "$path" 2>&1); then e=false; else e=true; fi
    r='{"content":[{"type":"text","text":"'$text'"}],"isError":'$e'}' ;;
  *'"id":'*)
    echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"Unknown method"}}'
    continue ;;
  *) continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'$id',"result":'$r'}'
done
"""


def _missing() -> str | None:
    """Why there can be no containers here."""
    busybox = shutil.which("busybox")
    if not sandbox_support().is_supported:
        return "This system has no sandbox."
    if shutil.which("docker") is None or busybox is None:
        return "The program docker or busybox (statically linked) is missing."
    words = ["docker", "version", "--format", "{{.Server.Version}}"]
    # A server does not get this variable, so the engine has to be the usual one.
    usual = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    engine = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False, env=usual)
    return None if engine.returncode == 0 else f"No container engine answers: {engine.stderr.strip()}"


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with a shell and a server that reads files."""
    if (reason := _missing()) is not None:
        pytest.skip(reason)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as files:
        busybox = tarfile.TarInfo("bin/busybox")
        content = Path(shutil.which("busybox") or "").read_bytes()
        for info, body in ((busybox, content), (tarfile.TarInfo("server"), SERVER.encode())):
            info.size, info.mode = len(body), 0o755
            files.addfile(info, io.BytesIO(body))
        for name in ("sh", "cat"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            files.addfile(link)
    name = f"{IMAGE}-{os.getpid()}"
    words = ["docker", "import", "--change", 'ENTRYPOINT ["/server"]', "-", name]
    subprocess.run(words, input=archive.getvalue(), capture_output=True, timeout=120, check=True)
    yield name
    subprocess.run(["docker", "rmi", "--force", name], capture_output=True, timeout=60, check=True)


@dataclass
class Machine:
    """A project beside a private key, and a pool that starts the project's servers."""

    root: Path
    harness: PoolHarness

    @property
    def project(self) -> Path:
        """The project's directory."""
        return self.root / "user" / "project"

    def spec(self, sandbox: Sandbox, *words: str) -> ServerSpec:
        """A server of the project in a container."""
        place = str(self.project)
        source = DefinitionSource("claude-code", "project", "mcp.json", project=place, directory=place)
        words = ("run", "-i", "--rm", *words)
        return ServerSpec("box", "stdio", source, alias="box", command="docker", args=words, cwd=place, sandbox=sandbox)

    async def started(self, spec: ServerSpec) -> UpstreamSource:
        """The connected server."""
        self.harness.pool.reconcile(None, discovery_of(spec))
        source = self.harness.source("box")
        await source.upstream.check()
        assert source.status.state == "connected", source.status
        return source


@pytest.fixture
async def machine(processes: Processes, tmp_path: Path) -> AsyncGenerator[Machine]:
    """A machine whose servers can have a sandbox."""
    for file, text in (("project/note", "inside"), (".ssh/key", "private")):
        path = tmp_path / "user" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "user")}
    sandboxes = tmp_path / "crib" / "tmp"
    async with open_harness(
        processes, tmp_path, environment=environment, sandboxes=sandboxes, timing=Timing()
    ) as opened:
        yield Machine(tmp_path, opened)


pytestmark = [pytest.mark.anyio, takes_long]


@pytest.mark.parametrize("profile", ["project", "strict"])
async def test_server_in_a_container_works_in_its_sandbox(image: str, machine: Machine, profile: str) -> None:
    is_strict = profile == "strict"
    mount = f"{machine.project}:/work" + (":ro" if is_strict else "")
    sandbox = Sandbox("strict", chosen=True) if is_strict else Sandbox("project")
    network = ("--network", "none")  # an engine without a bridge has no other
    source = await machine.started(machine.spec(sandbox, *network, "-v", mount, image))
    assert text_of(await call(source, "cat", path="/work/note")) == "inside"
    assert (await call(source, "cat", path=str(machine.root / "user" / ".ssh" / "key"))).is_error


@pytest.mark.parametrize(
    "words",
    [("-v", "{root}/user/.ssh:/work"), ("--privileged",), ("-v", "{root}:/work:ro"), ("--network", "host")],
    ids=["keys", "privileged", "above", "network"],
)
async def test_container_with_more_than_the_sandbox_does_not_start(
    image: str, machine: Machine, words: tuple[str, ...]
) -> None:
    options = [each.format(root=machine.root) for each in words]
    machine.harness.pool.reconcile(None, discovery_of(machine.spec(Sandbox("project"), *options, image)))
    source = await machine.harness.until_state("box", "failed")
    (refused,) = source.status.refused
    assert (refused.kind, refused.target.endswith(".sock")) == ("write", True)
    problem = next(each for each in source.status.problems if each.code == "sandbox.refused")
    assert f"--write {refused.target}" in (problem.hint or "")


async def test_listed_socket_leaves_the_sandbox(image: str, machine: Machine) -> None:
    mount = ("-v", f"{machine.root}/user/.ssh:/keys", "--network", "none", image)
    listed = Sandbox("strict", chosen=True, write=(ENGINE,))
    source = await machine.started(machine.spec(listed, *mount))
    assert text_of(await call(source, "cat", path="/keys/key")) == "private"


async def test_program_of_the_project_with_the_name_of_the_client_reaches_no_engine(
    image: str, machine: Machine
) -> None:
    own = machine.project / "docker"
    shutil.copy(shutil.which("docker") or "", own)
    spec = replace(machine.spec(Sandbox("project"), "--network", "none", image), command=str(own))
    machine.harness.pool.reconcile(None, discovery_of(spec))
    source = await machine.harness.until_state("box", "failed")
    assert [each.kind for each in source.status.refused] == ["write"]
