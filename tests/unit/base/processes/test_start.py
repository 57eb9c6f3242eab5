"""The environment of a server, its sandbox, and the one function that starts processes."""

import ast
import socket
from pathlib import Path

import pytest

import toolcrib
from toolcrib.base.processes.sandbox import SandboxSupport, sandbox_support, sandboxed_command
from toolcrib.base.processes.start import MARKER, NETWORK_NAMES, child_environment, start_server
from toolcrib.model.sandbox import SandboxGrants, SandboxNetwork


def test_server_gets_base_names_declared_variables_and_the_marker() -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "ANTHROPIC_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "TOOLCRIB_DATABASE_URL": "x",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
    }
    given = child_environment(inherited, {"PATH": "/opt/bin", "KEY": "declared", MARKER: "forged"}, "crib")
    assert given == {"PATH": "/opt/bin", "HOME": "/home/me", "KEY": "declared", MARKER: "crib"}


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_server_gets_the_users_proxies_and_certificates(name: str) -> None:
    assert child_environment({name: "inherited"}, {}, "crib") == {name: "inherited", MARKER: "crib"}
    assert child_environment({name: "inherited"}, {name: "declared"}, "crib")[name] == "declared"


def test_only_one_function_starts_processes() -> None:
    """Lists the modules that could start a server, and their calls that do."""
    starters = {"Popen", "run", "call", "check_call", "check_output", "open_process", "run_process", "system", "popen"}
    starters |= {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "posix_spawn", "fork", "execv"}
    owners = {"subprocess", "os", "anyio", "asyncio", "pty"}
    found: list[str] = []
    root = Path(toolcrib.__file__).parent
    for path in (*(root / "base" / "processes").rglob("*.py"), *(root / "upstream").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (
                    owner in owners and name in starters
                ):
                    found.append(f"{path.name}: {owner}.{name}")
                case _:
                    pass
    assert found == ["start.py: subprocess.Popen"]


def test_servers_variables_take_effect_only_inside_its_sandbox() -> None:
    support = SandboxSupport(True, "", module="/nono.so")
    environment = {"LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil", MARKER: "m"}
    words, passed = sandboxed_command(["server", "--flag"], environment, SandboxGrants(), support)
    assert words[-2:] == ["server", "--flag"]
    assert set(passed) == {"SANDBOXED_LD_PRELOAD", "SANDBOXED_PYTHONPATH", f"SANDBOXED_{MARKER}", MARKER}


@pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox.")
@pytest.mark.parametrize("network", ["all", "none", "hosts"])
def test_sandboxed_server_starts_without_access_to_the_crib(network: SandboxNetwork) -> None:
    own, guard_end = socket.socketpair()
    script = 'echo started; n=3; while [ $n -lt 99 ]; do (: >&$n) 2>/dev/null && echo "has $n"; n=$((n+1)); done'
    with own, guard_end:
        guard = guard_end.fileno() if network == "hosts" else -1
        grants = SandboxGrants(("/bin", "/usr", "/lib", "/lib64"), ("/dev/null",), network, guard=guard)
        process = start_server("x", ["/bin/sh", "-c", script], {}, "/", sandbox=grants)
        output, errors = process.communicate(timeout=30)
    assert (output, errors) == (b"started\n", b"")  # it has no descriptor other than its pipes
