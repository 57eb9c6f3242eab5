"""The shipped fixtures, used as tests of other projects use them."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from deadlines import stretched
from long_tests import takes_long
from toolcrib import Crib, tool
from toolcrib.base.settings import Environment
from toolcrib.testing import call, crib
from toolcrib.testing.processes import descendants, from_ps, left_behind
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = takes_long

SECRET = "TOOLCRIB_TEST_SECRET"
LEAKS = """
import subprocess, sys

pytest_plugins = ["toolcrib.testing.plugin"]

def test_that_leaves_a_process_behind(no_leaked_children):
    subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE).stdin.flush()

def test_that_leaves_none(no_leaked_children):
    subprocess.run([sys.executable, "-c", ""], check=True)
"""


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that waits for its input."""
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@tool
async def secret() -> str:
    """Return a variable of the process."""
    return os.environ.get(SECRET, "none")


@tool(name="other-name", requires=("clock",), privileged=True)
async def named() -> int:
    """A privileged tool with a required service."""
    return 1


@tool(timeout=0.05)
async def slow() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return ""


def test_claude_environment_contains_the_model_and_no_user_variables(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(SECRET, "hidden")
    environment: Environment = request.getfixturevalue("claude_environment")
    model: ScriptedModel = request.getfixturevalue("scripted_model")
    assert environment["ANTHROPIC_BASE_URL"] == model.url
    assert Path(environment["HOME"]).is_dir()
    assert list(Path(environment["HOME"]).iterdir()) == []
    assert SECRET not in environment
    kept = {name for name in os.environ if not name.startswith("PYTEST_")}
    assert kept == set(environment)
    assert os.environ["HOME"] == environment["HOME"]


@pytest.mark.anyio
async def test_crib_has_no_servers_and_is_removed_afterwards(tmp_path: Path) -> None:
    async with crib([secret]) as opened:
        home = opened.home.root
        owner = opened.owner(source="cli")
        assert (await opened.call("tools/secret", principal=owner)).content[0]["text"] == "none"
        assert (await opened.servers.list()).servers == ()
    assert not home.exists()


@pytest.mark.anyio
async def test_crib_fixture_is_open_and_isolated(crib: Crib) -> None:
    assert crib.home.root.is_dir()
    assert not crib.settings.home.is_relative_to(Path.home())
    assert not (await crib.call("toolcrib/ping", principal=crib.owner(source="cli"))).is_error


@pytest.mark.anyio
async def test_call_provides_the_required_services() -> None:
    assert (await call(named, services=["clock"])).structured_content == {"result": 1}


@pytest.mark.anyio
async def test_timeout_of_a_tool_is_an_error_result() -> None:
    with anyio.fail_after(10):
        result = await call(slow)
    assert result.is_error
    assert "did not answer within 0.05 s" in result.content[0]["text"]


def test_scripted_model_fixture_runs_without_requests(scripted_model: ScriptedModel) -> None:
    assert any(thread.name == "scripted-model" for thread in threading.enumerate())
    assert scripted_model.requests == []


def test_descendants_include_running_children_and_not_ended_ones(child: "subprocess.Popen[bytes]") -> None:
    assert child.pid in descendants()
    before = {pid: name for pid, name in descendants().items() if pid != child.pid}
    assert child.pid in left_behind(before, timeout=0.05)
    assert child.wait(timeout=stretched(5)) != 0
    assert left_behind(before, timeout=stretched(5)) == {}


@pytest.mark.skipif(shutil.which("ps") is None, reason="The program ps is not installed.")
def test_ps_reports_the_same_parent_and_name(child: "subprocess.Popen[bytes]") -> None:
    (found,) = [process for process in from_ps() if process.pid == child.pid]
    assert (found.parent, found.name.endswith(descendants()[child.pid])) == (os.getpid(), True)


def test_leaked_process_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_leaks.py").write_text(LEAKS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_leaks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed, 1 error" in done.stdout
    assert "Processes are still running" in done.stdout


@pytest.mark.parametrize("module", ["plugin", "runners", "sources"])
def test_missing_pytest_error_names_the_extra(module: str) -> None:
    code = f"import sys; sys.modules['pytest'] = None; import toolcrib.testing; import toolcrib.testing.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("ModuleNotFoundError: The fixtures and conformance suites")


def test_tools_can_be_called_without_pytest() -> None:
    code = (
        "import sys, anyio; sys.modules['pytest'] = None\n"
        "from toolcrib import testing, tool\n"
        "@tool\n"
        "async def echo(text: str) -> str: return text\n"
        "print(anyio.run(testing.call, echo, {'text': 'hi'}).content[0]['text'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("hi\n", 0), done.stderr
