"""`toolcrib serve` at a terminal: start, ready line, joining, refusals, and end."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from deadlines import stretched
from e2e.shell import LIMIT, Running, Shell, modes
from http_clients import PLAIN
from toolcrib.model.version import __version__


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell.at(tmp_path)


def get(url: str, **options: str) -> httpx2.Response:
    with httpx2.Client(trust_env=False, verify=PLAIN, timeout=stretched(10)) as client:
        return client.get(url, headers=options)


def test_ready_line_describes_the_running_crib(shell: Shell) -> None:
    with shell.serving() as crib:
        assert crib.ready["event"] == "ready"
        assert crib.ready["home"] == str(shell.home)
        assert set(crib.ready) == {"event", "console", "mcp", "home"}
        assert get(f"{crib.url}/healthz").status_code == 200
        entered = get(crib.ready["console"])
        assert entered.status_code == 303
        assert get(crib.ready["console"]).status_code == 401
        run = json.loads((shell.home / "run.json").read_text(encoding="utf-8"))
        assert (run["pid"], run["url"], run["kind"]) == (crib.process.pid, crib.url, "serve")
        assert run["version"] == __version__


def test_open_prints_a_link_that_signs_in_and_the_session_survives_a_restart(shell: Shell) -> None:
    with shell.serving() as crib:
        url = shell.run("open", "--print").stdout.strip()
        entered = get(url)
        assert entered.status_code == 303
        assert get(shell.json("open")["url"]).status_code == 303
        cookie, port = entered.headers["set-cookie"].partition(";")[0], crib.port
    with shell.serving("--port", str(port)) as crib:
        assert get(f"{crib.url}/settings", cookie=cookie, accept="text/html").status_code == 200


def test_open_without_a_running_crib_exits_5_and_names_the_command(shell: Shell) -> None:
    done = shell.run("open", "--print")
    assert (done.returncode, done.stdout) == (5, "")
    assert "toolcrib serve" in done.stderr


def test_serve_prints_its_addresses_as_text(shell: Shell) -> None:
    process = shell.start("serve")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(9)]
    process.terminate()
    process.communicate(timeout=LIMIT)
    output = "".join(lines)
    assert output.startswith(f"Toolcrib {__version__} is ready. Press Ctrl-C to stop.\n")
    assert "`toolcrib connect APP`" in output
    assert re.fullmatch(r"  console  http://127\.0\.0\.1:\d+/login\?code=[\w-]+\n", lines[-1])
    assert re.search(r"^  MCP      http://127\.0\.0\.1:\d+/mcp$", output, re.MULTILINE)
    assert f"  home     {shell.home}\n" in output


def test_toolcrib_without_a_command_serves(shell: Shell) -> None:
    process = shell.start("--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ready"
    process.terminate()
    process.communicate(timeout=LIMIT)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_stops_serve_and_frees_its_port(shell: Shell, number: signal.Signals, code: int) -> None:
    with shell.serving() as crib:
        port = crib.port
        assert crib.end(number) == code
        assert crib.process.stderr is not None
        assert crib.process.stderr.read() == ""
    assert not (shell.home / "run.json").exists()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_commands_join_the_running_crib_and_see_its_settings(shell: Shell) -> None:
    with shell.serving("--port", "0") as crib:
        assert shell.run("tools", "call", "toolcrib/ping").returncode == 0
        assert get(f"{crib.url}/healthz").status_code == 200
        answer = shell.json("tools", "call", "toolcrib/get_server_info")
        assert answer["structuredContent"]["port"] == crib.port
        rows = {row["name"]: row for row in shell.json("settings")}
        assert rows["port"]["origin"] == "flag --port"
        assert str(crib.process.pid) in shell.run("settings").stderr


def test_second_serve_names_the_running_crib_and_exits_5(shell: Shell) -> None:
    with shell.serving() as crib:
        done = shell.run("serve", "--json")
        assert done.returncode == 5
        error = json.loads(done.stdout)["error"]
        assert error["code"] == "crib.running"
        assert crib.url in error["message"]
        assert str(crib.process.pid) in error["message"]
        link = re.search(r"http://\S+/login\?code=[\w-]+", error["hint"])
        assert link is not None
        assert get(link[0]).status_code == 303
        assert get(f"{crib.url}/healthz").status_code == 200


def test_serve_waits_for_a_command_that_has_the_home(shell: Shell, tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    command = shell.start("tools", "call", "lab/hold", json.dumps({"started": str(started), "until": str(until)}))
    wait_for(started)
    server = shell.start("serve", "--json")
    wait_for_lock_attempt(server)
    until.touch()
    out, err = command.communicate(timeout=LIMIT)
    assert (command.returncode, out.strip()) == (0, "held"), err
    assert server.stdout is not None
    assert json.loads(server.stdout.readline())["event"] == "ready"
    server.terminate()
    server.communicate(timeout=LIMIT)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + stretched(30)
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def wait_for_lock_attempt(process: Running) -> None:
    """Give a process time to reach the lock. It must still wait then."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)


def test_home_works_after_its_crib_was_killed(shell: Shell) -> None:
    with shell.serving() as crib:
        assert crib.end(signal.SIGKILL) == -signal.SIGKILL
    assert (shell.home / "run.json").exists()
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    with shell.serving() as crib:
        assert get(f"{crib.url}/healthz").status_code == 200
        assert shell.json("audit", "verify")["ok"] is True


FORKING = '''
import os
import time

from toolcrib import tool


@tool
def leave_a_child() -> int:
    """Fork a process that outlives this one."""
    child = os.fork()
    if not child:
        os.closerange(0, 3)
        time.sleep(60)
        os._exit(0)
    return child
'''


def test_children_of_a_killed_crib_keep_neither_its_home_nor_its_port(shell: Shell) -> None:
    (shell.home / "tools" / "forking.py").write_text(FORKING, encoding="utf-8")
    with shell.serving() as crib:
        child = shell.json("tools", "call", "forking/leave_a_child")["structuredContent"]["result"]
        crib.end(signal.SIGKILL)
    try:
        with shell.serving("--port", str(crib.port)) as again:
            assert again.url == crib.url
    finally:
        os.kill(child, signal.SIGKILL)


def test_command_names_the_process_that_hangs_and_exits_5(shell: Shell) -> None:
    with shell.serving() as crib:
        crib.process.send_signal(signal.SIGSTOP)
        done = shell.run("tools", "list", "--json")
        assert done.returncode == 5
        error = json.loads(done.stdout)["error"]
        assert error["code"] == "home.busy"
        assert f"Process {crib.process.pid} holds {shell.home}" in error["message"]


def test_occupied_port_is_an_error_with_a_hint(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = shell.run("serve", "--port", port)
    assert done.returncode == 5
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: Port {port} on 127.0.0.1 is in use")
    assert "hint: Choose another port with `--port` or `TOOLCRIB_PORT`." in done.stderr
    assert not (shell.home / "run.json").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_serve_refuses_an_address_that_other_machines_can_reach(shell: Shell, host: str) -> None:
    done = shell.run("serve", "--host", host, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "bind.refused"


def test_open_option_opens_the_browser_with_the_link(shell: Shell, tmp_path: Path) -> None:
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part && mv {opened}.part {opened}\n', encoding="utf-8")
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    with shell.having(BROWSER=str(browser)).serving("--open") as crib:
        wait_for(opened)
        assert opened.read_text(encoding="utf-8") == crib.ready["console"]


def test_serve_starts_without_a_browser(shell: Shell) -> None:
    with shell.serving("--open") as crib:
        assert get(f"{crib.url}/healthz").status_code == 200


def test_token_is_never_printed_logged_or_in_arguments(shell: Shell) -> None:
    loud = shell.having(TOOLCRIB_LOG_LEVEL="debug")
    with loud.serving() as crib:
        token = (shell.home / "token").read_text(encoding="utf-8").strip()
        output = [loud.run(*line) for line in (["tools", "list"], ["settings"], ["tools", "call", "toolcrib/ping"])]
        arguments = Path(f"/proc/{crib.process.pid}/cmdline")
        shown = arguments.read_bytes().decode() if arguments.exists() else ""
        crib.end(signal.SIGTERM)
        assert crib.process.stderr is not None
        shown += json.dumps(crib.ready) + crib.process.stderr.read()
    shown += "".join(done.stdout + done.stderr for done in output)
    shown += "".join(path.read_text(encoding="utf-8") for path in (shell.home / "logs").iterdir())
    assert len(token) >= 43
    assert token not in shown
    assert {mode for name, mode in modes(shell.home / "logs").items() if name != "."} == {0o600}


def test_terminal_receives_colours_and_no_other_control_characters(shell: Shell) -> None:
    colours = re.compile(r"\x1b\[[0-9;]*m")
    with shell.serving():
        output = on_terminal(shell, "tools", "list")
        assert "lab/greet" in output
        assert colours.search(output)
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", colours.sub("", output))
        assert "\x1b" not in on_terminal(shell.having(NO_COLOR="1"), "tools", "list")
        assert "\x1b" not in on_terminal(shell.having(TERM="dumb"), "tools", "list")
        assert "\x1b" not in on_terminal(shell, "tools", "call", "lab/hostile", "--json")


def on_terminal(shell: Shell, *arguments: str) -> str:
    """Run a command with a terminal as standard output, and return what it writes."""
    parent, child = pty.openpty()
    variables = {"TERM": "xterm-256color", "COLUMNS": "100", **shell.variables}
    with subprocess.Popen(
        shell.command(*arguments), cwd=shell.folder, env=variables, stdin=child, stdout=child, stderr=subprocess.PIPE
    ) as process:
        os.close(child)
        output = b""
        while True:
            try:
                more = os.read(parent, 65_536)
            except OSError:  # Linux raises this at the end of a terminal
                break
            if not more:
                break
            output += more
        os.close(parent)
        assert process.wait(LIMIT) == 0
    return output.decode()


def test_front_exits_quietly_at_the_end_of_its_input(shell: Shell) -> None:
    done = shell.run("stdio", stdin="")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_the_front_and_its_crib(shell: Shell, number: signal.Signals, code: int) -> None:
    command = shell.command("stdio")
    with subprocess.Popen(
        command, cwd=shell.folder, env=shell.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as front:
        wait_for(shell.home / "run.json")
        front.send_signal(number)
        assert front.wait(LIMIT) == code
        assert front.stdout is not None
        assert front.stdout.read() == b""
    assert not (shell.home / "run.json").exists()


@pytest.mark.parametrize("agent", ["nobody", "", "..", "Reviewer"])
def test_front_of_unknown_agent_exits_3(shell: Shell, agent: str) -> None:
    done = shell.run("stdio", "--agent", agent, stdin="")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert not (shell.home / "run.json").exists()


def test_front_of_unknown_agent_names_it_and_the_list_command(shell: Shell) -> None:
    done = shell.run("stdio", "--agent", "nobody", stdin="")
    assert "Agent with ID 'nobody' not found." in done.stderr
    assert "toolcrib agents list" in done.stderr
    assert "Traceback" not in done.stderr


def test_front_of_an_agent_serves_its_instructions(shell: Shell) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    done = shell.run("stdio", "--agent", "reviewer", stdin=f"{line}\n")
    assert done.returncode == 0, done.stderr
    (answer,) = map(json.loads, done.stdout.splitlines())
    prompt = shell.run("agents", "inject", "reviewer", "--json")
    assert answer["result"]["instructions"] == json.loads(prompt.stdout)["prompt"]
