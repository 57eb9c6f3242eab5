"""The examples run as users run them: as programs, in an empty HOME."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from programs import installed
from toolcrib.testing.environments import bare_environment, claude_environment
from toolcrib.testing.scripted_model.server import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIMIT = 120
ON_ASYNCIO = """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def run(home: Path, *command: str, python: str = sys.executable, **variables: str) -> str:
    """Run Python in an empty HOME and return its output."""
    done = subprocess.run(
        [python, *command],
        cwd=home,
        env={**bare_environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def crib(tmp_path: Path) -> Path:
    """Return a home with one server, a clock."""
    home = tmp_path / "crib"
    home.mkdir(mode=0o700)
    clock = {"command": sys.executable, "args": ["-m", "upstreams.clock"], "env": {"PYTHONPATH": str(ROOT / "tests")}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"time": clock}}), encoding="utf-8")
    return home


def test_readme_lists_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    examples = {each.name for each in EXAMPLES.iterdir() if each.suffix == ".py" or each.name == "plugin"}
    assert {name for name in examples if f"[{name}]({name})" in page} == examples


def test_injected_tools_example_prints_the_forecast(tmp_path: Path) -> None:
    assert "Ulm, day 2: sunny" in run(tmp_path, str(EXAMPLES / "injected_tools.py"))


def test_example_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text(ON_ASYNCIO, encoding="utf-8")
    for name in ("injected_tools.py", "test_my_tools.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    output = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_my_tools.py")
    assert "3 passed" in output


def test_policy_as_code_example_prints_decisions_and_reasons(tmp_path: Path) -> None:
    output = run(tmp_path, str(EXAMPLES / "policy_as_code.py")).splitlines()
    assert output[0] == "K-1: 20.00 € are on their way."
    assert "Refunds of 200 € and more are made by accounting." in output[1]
    assert output[2] == "ask because: New shop."
    assert output[-1].endswith("allow would have been hidden")


def test_claude_loop_example_calls_a_tool(tmp_path: Path) -> None:
    lines = [{"blocks": [{"tool": "mcp__weather__forecast", "input": {"city": "Ulm", "days": 1}}]},
             {"blocks": [{"text": "I read: {{last_tool_result}}"}]}]  # fmt: skip
    with ScriptedModel({"default": lines}) as model:
        output = run(tmp_path, str(EXAMPLES / "claude_loop.py"), **claude_environment(tmp_path, model.url))
    assert "Ulm, day 1: sunny" in output
    assert "ended: success" in output


def test_bridged_schema_example_prints_schemas_and_a_result(tmp_path: Path, crib: Path) -> None:
    output = run(tmp_path, str(EXAMPLES / "bridged_schema.py"), TOOLCRIB_HOME=str(crib))
    assert '"name": "mcp_time_get_current_time"' in output
    assert "+00:00" in output


@pytest.mark.skipif("TOOLCRIB_TEST_ALL" not in os.environ, reason="installs other frameworks: make test-all")
@pytest.mark.parametrize("name", ["bridged_pydantic_ai.py", "bridged_openai_agents.py"])
def test_framework_examples_call_bridged_tools(tmp_path: Path, crib: Path, name: str) -> None:
    python = str(installed("frameworks") / "bin" / "python")
    path = str(ROOT / "src")
    output = run(tmp_path, str(EXAMPLES / name), python=python, TOOLCRIB_HOME=str(crib), PYTHONPATH=path)
    assert "mcp_time_get_current_time" in output
