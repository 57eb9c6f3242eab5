"""Lifetime of upstream processes: they end with the reason for them, and other processes are left alone."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

from deadlines import stretched
from e2e.shell import Shell
from integration.faults.harness import Machine, call, program, text_of, until_listed, until_state
from lab import eventually
from long_tests import takes_long
from toolcrib.base.home import owner_token
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject, is_array, is_object
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = [pytest.mark.anyio, takes_long]

MANY_SERVERS = 100 if os.environ.get("TOOLCRIB_TEST_ALL") else 12


def is_alive(pid: object) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


async def pid_of(client: ApiClient, server: str) -> int:
    """Return the process id that a server reports."""
    return int(text_of(await call(client, f"{server}/pid")))


def test_next_start_ends_the_processes_of_a_killed_crib(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    servers = {"ignores_shutdown": program("misbehaving", "family"), "plain": program("legacy", "plain")}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with shell.serving() as serving:
        result = shell.json("tools", "call", "ignores_shutdown/pids", "{}")
        assert is_object(result)
        pids: list[int] = list(result["structuredContent"].values())
        assert len(pids) == 2
        serving.end(signal.SIGKILL)
    with shell.serving():
        deadline = time.monotonic() + stretched(10)
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(is_alive, pids))


def test_unresponsive_servers_are_stopped_concurrently(tmp_path: Path) -> None:
    """Each server ignores SIGTERM and the end of its input, so stopping them one by one would take too long."""
    shell = Shell.at(tmp_path)
    servers = {f"s{number}": program("misbehaving", "term", str(number)) for number in range(MANY_SERVERS)}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with shell.serving() as serving:
        found = shell.json("mcp", "test")
        assert is_array(found)
        pids = [server["pid"] for server in found if is_object(server) and server["state"] == "connected"]
        assert len(pids) == MANY_SERVERS
        serving.process.terminate()
        assert serving.process.wait(10) in (0, 143, -signal.SIGTERM)
        assert not any(map(is_alive, pids))


async def test_removed_and_untrusted_servers_end_while_others_keep_running(machine: Machine, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    file = project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"here": program("legacy", "plain", "here")}}), encoding="utf-8")
    async with machine.crib(gone=program("legacy", "plain", "1"), stays=program("legacy", "plain", "2")) as (
        held,
        client,
    ):
        await until_listed(client, "gone", 10)
        gone, stays = await pid_of(client, "gone"), await pid_of(client, "stays")
        await client.remove_server("gone")
        await eventually(lambda: not is_alive(gone))
        await client.trust_path(
            str(project), [each["question"]["digest"] for each in await client.trust_path(str(project))]
        )
        async with ApiClient(held.info.url, owner_token(held.crib.home), source="api", cwd=str(project)) as inside:
            in_project = await pid_of(inside, "here")
        await client.untrust_path(str(project))
        await eventually(lambda: not is_alive(in_project))
        assert await pid_of(client, "stays") == stays


async def test_edited_server_of_an_app_restarts_only_after_it_is_trusted(machine: Machine) -> None:
    file = machine.user / ".claude.json"

    def write(**servers: JsonObject) -> None:
        file.write_text(json.dumps({"theme": "dark", "mcpServers": servers}), encoding="utf-8")

    async def trust(client: ApiClient, name: str) -> None:
        await client.trust_server(name, (await client.server(name))["question"]["digest"])

    write(one=program("legacy", "plain", "1"), two=program("legacy", "plain", "2"))
    async with machine.crib() as (_, client):
        for name in ("one", "two"):
            await trust(client, name)
            await until_listed(client, name, 10)
        one, two = await pid_of(client, "one"), await pid_of(client, "two")
        write(one=program("legacy", "plain", "changed"), two=program("legacy", "plain", "2"))
        found = {server["name"]: server["state"] for server in await client.reload_servers()}
        assert found["one"] == "untrusted", "a changed command needs to be trusted again"
        await eventually(lambda: not is_alive(one))
        assert await pid_of(client, "two") == two
        await trust(client, "one")
        await until_state(client, "one", "connected")
        assert await pid_of(client, "one") != one
        assert await pid_of(client, "two") == two


async def test_crib_refuses_to_connect_to_itself(machine: Machine) -> None:
    async with machine.crib() as (held, client):
        words = ["-m", "toolcrib", "stdio"]
        headers: JsonObject = {"Authorization": f"Bearer {owner_token(held.crib.home)}"}
        machine.write(
            front={"command": sys.executable, "args": words, "env": home_variables(machine)},
            hidden={
                "command": "sh",
                "args": ["-c", f"exec {sys.executable} {' '.join(words)}"],
                "env": home_variables(machine),
            },
            address={"type": "http", "url": f"{held.info.url}/mcp", "headers": headers},
        )
        await client.reload_servers()
        found = await client.server("front")
        assert "this crib itself" in found["sentence"]
        assert found["action"] == "toolcrib mcp get front"
        with pytest.raises(ConfigError, match="this crib itself"):
            await client.test_server("front")
        address = await client.test_server("address")
        assert (address["state"], "this crib itself" in address["sentence"]) == ("failed", True)
        hidden = await client.test_server("hidden")
        assert hidden["state"] == "failed"
        assert "was started by Toolcrib itself" in " ".join(hidden["stderr"])


def home_variables(machine: Machine) -> JsonObject:
    """Return the variables with which a program finds the crib of this home."""
    return {"TOOLCRIB_HOME": str(machine.settings.home), "HOME": str(machine.user)}


async def test_crib_of_another_home_can_be_an_upstream(machine: Machine, tmp_path: Path) -> None:
    other = Machine(tmp_path / "other")
    async with other.crib(legacy=program("legacy", "plain")) as (held, inner):
        await until_listed(inner, "legacy", 10)
        token = owner_token(held.crib.home)
        headers: JsonObject = {"Authorization": f"Bearer {token}"}
        # Started directly, the command would be recognized as the front of this crib.
        words = f"exec {sys.executable} -m toolcrib stdio"
        front: JsonObject = {"command": "sh", "args": ["-c", words], "env": home_variables(other)}
        async with machine.crib(
            web={"type": "http", "url": f"{held.info.url}/mcp", "headers": headers}, front=front
        ) as (
            _,
            client,
        ):
            for name in ("web", "front"):
                await until_state(client, name, "connected")
                answer = await call(client, f"{name}/legacy_echo", text=name)
                assert answer["structuredContent"] == {"text": name}, answer


async def test_concurrent_reloads_leave_one_process(machine: Machine) -> None:
    async with machine.crib(one=program("legacy", "plain")) as (_, client):
        await until_listed(client, "one", 10)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(client.reload_server, "one")
                tasks.start_soon(client.reload_servers)
        await until_state(client, "one", "connected")
        pid = await pid_of(client, "one")
        await eventually(lambda: [each for each in _children("upstreams.legacy") if is_alive(each)] == [pid])


def _children(word: str) -> list[int]:
    """Return the child processes whose command line contains a word."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parent = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and word.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found
