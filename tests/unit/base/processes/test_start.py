"""What may reach a server, and that there is one place that starts processes."""

import ast
import socket
from pathlib import Path

import pytest

import toolcrib
from toolcrib.base.processes.sandbox import SandboxSupport, sandbox_support, sandboxed_command
from toolcrib.base.processes.start import MARKER, NETWORK_NAMES, child_environment, start_server
from toolcrib.model.sandbox import SandboxGrants, SandboxNetwork


def test_a_server_gets_the_base_names_what_is_declared_and_the_marker() -> None:
    ours = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "ANTHROPIC_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "TOOLCRIB_DATABASE_URL": "x",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
    }
    given = child_environment(ours, {"PATH": "/opt/bin", "KEY": "declared", MARKER: "forged"}, "crib")
    assert given == {"PATH": "/opt/bin", "HOME": "/home/me", "KEY": "declared", MARKER: "crib"}


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_a_server_gets_the_proxies_and_certificates_of_the_user(name: str) -> None:
    assert child_environment({name: "ours"}, {}, "crib") == {name: "ours", MARKER: "crib"}
    assert child_environment({name: "ours"}, {name: "declared"}, "crib")[name] == "declared"


def test_one_function_starts_processes() -> None:
    """The modules that could start a server, and the calls that do."""
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


def test_a_servers_variables_have_no_effect_before_its_sandbox_is_in_force() -> None:
    support = SandboxSupport(True, "", module="/nono.so")
    environment = {"LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil", MARKER: "m"}
    words, passed = sandboxed_command(["server", "--flag"], environment, SandboxGrants(), support)
    assert words[-2:] == ["server", "--flag"]
    assert set(passed) == {"SANDBOXED_LD_PRELOAD", "SANDBOXED_PYTHONPATH", f"SANDBOXED_{MARKER}", MARKER}


@pytest.mark.skipif(not sandbox_support().is_supported, reason="This system has no sandbox.")
@pytest.mark.parametrize("network", ["all", "none", "hosts"])
def test_a_sandbox_need_not_include_the_crib_itself(network: SandboxNetwork) -> None:
    own, theirs = socket.socketpair()
    script = 'echo started; n=3; while [ $n -lt 99 ]; do (: >&$n) 2>/dev/null && echo "has $n"; n=$((n+1)); done'
    with own, theirs:
        guard = theirs.fileno() if network == "hosts" else -1
        grants = SandboxGrants(("/bin", "/usr", "/lib", "/lib64"), ("/dev/null",), network, guard=guard)
        process = start_server("x", ["/bin/sh", "-c", script], {}, "/", sandbox=grants)
        output, errors = process.communicate(timeout=30)
    assert (output, errors) == (b"started\n", b"")  # and it has no descriptor but its pipes
