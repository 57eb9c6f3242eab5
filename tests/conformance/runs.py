"""The runs of the conformance suite: one upstream behind the crib as a server, and the crib as a client.

The crib runs from its wheel in its own process, with all extras and its own event loop. The suite knows no token, so a
wrapper around the server's application adds it (`conformance.serve`). Host and Origin reach the crib's guard as they
were sent, and the answers are the crib's own.

"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2

from conformance.suite import SpecVersion, Tally, Verdict, run_suite
from http_clients import NO_KEYRING, PLAIN
from toolcrib.base.home import prepare_home
from toolcrib.model.json import JsonObject

Upstream = Literal["stdio", "http"]

TESTS = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "upstreams.everything"]
VARIABLES = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address that the suite expects in requests for a client metadata document."""


class Run(NamedTuple):
    """One run of the suite: the tested side of the crib, the protocol version, and the upstream behind it."""

    side: Literal["server", "client"]
    version: SpecVersion
    upstream: Upstream


RUNS = (
    Run("server", "2025-11-25", "stdio"),
    Run("server", "2025-11-25", "http"),
    Run("server", "2026-07-28", "stdio"),
    Run("server", "2026-07-28", "http"),
    Run("client", "2025-03-26", "http"),
    Run("client", "2025-11-25", "http"),
    Run("client", "2026-07-28", "http"),
)
"""The suite tests clients over HTTP only, so the crib is not run as a client over stdio."""


def conform(run: Run, programs: Path, wheel: Path, folder: Path) -> Verdict:
    """Run all scenarios of one side and version."""
    if run.side == "server":
        with upstream(run.upstream) as entry, crib_with(entry, folder, wheel) as url:
            return judge_server(programs, url, run.version, folder)
    driver = f"{sys.executable} {Path(__file__).with_name('client_driver.py')}"
    with running_crib(folder, wheel) as variables:
        options = ["--command", driver, "--suite", "all", "--spec-version", run.version]
        return run_suite(programs, "client", options, folder, variables)


EXTENSIONS: dict[str, tuple[str, ...]] = {
    "skills": ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory"),
    "tasks": (
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-status-notifications",
        "tasks-mrtr-composition",
    ),
}
"""The scenarios of extensions, except one of tasks: its server must refuse a client without tasks, but the crib
serves such a client by waiting for the task itself.
"""


def conform_extension(name: str, programs: Path, wheel: Path, folder: Path) -> Verdict:
    """Run the scenarios of one extension against an upstream that has it."""
    skill = folder / "skills" / "git-workflow"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: git-workflow\ndescription: Commit in steps.\n---\n\nSmall steps.\n")
    words = ["upstreams.skills", str(skill.parent)] if name == "skills" else ["upstreams.tasks"]
    entry: JsonObject = {"command": sys.executable, "args": ["-m", *words], "env": VARIABLES}
    with crib_with(entry, folder, wheel) as url:
        address = url.replace("127.0.0.1", "localhost")
        verdicts = [
            run_suite(programs, "server", ["--url", address, "--scenario", scenario], folder)
            for scenario in EXTENSIONS[name]
        ]
    return replace(verdicts[-1], exit_code=max(verdict.exit_code for verdict in verdicts))


def extension_row(name: str, tally: Tally) -> str:
    """Return the line of the published table for an extension."""
    return f"| {name} | {tally.scenarios} | {tally.passed} | {tally.failed} | {tally.warnings} |"


def judge_server(programs: Path, url: str, version: SpecVersion, folder: Path) -> Verdict:
    """Run all server scenarios of a version against an address."""
    address = url.replace("127.0.0.1", "localhost")
    return run_suite(programs, "server", ["--url", address, "--suite", "all", "--spec-version", version], folder)


@contextmanager
def everything() -> Generator[str]:
    """Run the SDK's server. Yields its address."""
    command = [*COMMAND, "http"]
    with subprocess.Popen(
        command, env=VARIABLES, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def upstream(transport: Upstream) -> Generator[JsonObject]:
    """Return the same server as an entry of the crib's file. The crib starts it, unless it listens itself."""
    if transport == "stdio":
        program, *words = COMMAND
        yield {"command": program, "args": [*words, "stdio"], "env": VARIABLES}
        return
    with everything() as url:
        yield {"type": "http", "url": url}


@contextmanager
def crib_with(entry: JsonObject, folder: Path, wheel: Path) -> Generator[str]:
    """Run `toolcrib serve` with one upstream. Yields its address once the upstream is connected."""
    home = prepare_home(folder / "crib")
    home.mcp_json.write_text(json.dumps({"mcpServers": {"everything": {"share": "session", **entry}}}), "utf-8")
    variables = {
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{wheel}{os.pathsep}{TESTS}",
        "TOOLCRIB_HOME": str(home.root),
        **NO_KEYRING,
    }
    command = [sys.executable, "-m", "conformance.serve", "serve", "--json", "--port", "0"]
    with serving(command, variables, folder) as ready:
        url = str(ready["mcp"])
        with httpx2.Client(base_url=url.removesuffix("/mcp"), timeout=60, trust_env=False, verify=PLAIN) as client:
            server = client.post("/api/servers/everything/test").json()
        assert server.get("state") == "connected", server
        yield f"{url}/servers/everything"


@contextmanager
def running_crib(folder: Path, wheel: Path) -> Generator[dict[str, str]]:
    """Run `toolcrib serve` like a user. Yields the variables for the driver."""
    user = folder / "user"
    user.mkdir()
    variables = {
        "HOME": str(user),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(wheel),
        "TOOLCRIB_HOME": str(folder / "crib"),
        "TOOLCRIB_CLIENT_METADATA_URL": CLIENT_DOCUMENT,
    }
    command = [sys.executable, "-m", "toolcrib", "serve", "--port", "0", "--no-open", "--json"]
    with serving(command, variables, user) as ready:
        token = (folder / "crib" / "token").read_text(encoding="utf-8").strip()
        yield {"CONFORMANCE_CRIB": str(ready["mcp"]).removesuffix("/mcp"), "CONFORMANCE_TOKEN": token}


@contextmanager
def serving(command: list[str], variables: dict[str, str], folder: Path) -> Generator[JsonObject]:
    """Run a crib until the block ends. Yields its ready line."""
    with (
        (folder / "serve.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


PAGE = TESTS.parent / "docs" / "conformance.md"


def row(run: Run, tally: Tally) -> str:
    """Return the line of the published table for a run."""
    cells = (run.side, run.version, run.upstream, tally.scenarios, tally.passed, tally.failed, tally.warnings)
    return f"| {' | '.join(map(str, cells))} |"
