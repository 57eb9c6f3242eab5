"""The kill switch ends everything, prevents new work until the owner resumes, and is audited."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest

from e2e.shell import Shell
from integration.gate.permissions.shop_lab import SELL, background_call, open_shop_lab, upstream
from integration.web.console.console_client import open_console
from integration.web.crib import Running, running_crib
from integration.web.session_client import BOUND, SessionClient, open_session_client
from toolcrib.base.home import Home
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.cli.main import main
from toolcrib.gate.audit.call_records import CallRecord
from toolcrib.host import kill_switch
from toolcrib.model.errors import ConfigError, Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio

SOON = 5.0
TOOL = ToolRef("changing_tools", "tool")


@pytest.fixture
async def sessions(running: Running, tmp_path: Path) -> AsyncGenerator[SessionClient]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with open_session_client(running, cwd) as sessions:
        sessions.runner.name = "claude"
        running.holding.crib.runners.add(sessions.runner)
        yield sessions


async def stop(client: httpx2.AsyncClient, reason: str | None = None) -> JsonObject:
    answer = await client.post("/api/stop-all", json={"reason": reason})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def changes(running: Running) -> list[JsonObject]:
    """Return the records of stops and resumes, oldest first."""
    found = await running.holding.crib.audit.find(Filters(server="toolcrib"))
    return [each for each in reversed(found) if each["tool"] in ("crib.stop", "crib.resume")]


async def test_stop_ends_a_call_in_flight_and_refuses_new_ones(running: Running) -> None:
    ended: list[httpx2.Response] = []
    async with running.client() as client, anyio.create_task_group() as tasks:

        async def call() -> None:
            ended.append(await client.post("/api/tools/bench/wait/call", json={"arguments": {}}))

        tasks.start_soon(call)
        await running.bench.started.wait()
        with anyio.fail_after(SOON):
            shape = await stop(client, "Something is odd.")
            await running.bench.cancelled.wait()
        assert (shape["state"], shape["stopped"]["by"], shape["stopped"]["reason"]) == (
            "stopped",
            "owner",
            "Something is odd.",
        )
        refused = await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "a"}})
        assert (refused.status_code, refused.json()["code"]) == (403, "crib.stopped")
        assert (await client.get("/api/tools")).status_code == 200, "the owner can still list tools"
        assert (await client.get("/api/status")).json()["state"] == "stopped"
    assert (ended[0].status_code, ended[0].json()["code"]) == (403, "crib.stopped")
    records = await running.holding.crib.audit.find(Filters(server="bench"))
    assert [each.get("refused") for each in records if each["tool"] == "echo"] == ["crib.stopped"]
    assert [each["phase"] for each in reversed(records) if each["tool"] == "wait"] == ["intent", "outcome"]
    assert (await running.holding.crib.audit.verify()).ok


async def test_call_that_is_being_recorded_is_stopped(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    crib = running.holding.crib
    recording, proceed = anyio.Event(), anyio.Event()
    intent = CallRecord.intent

    async def record_slowly(self: CallRecord) -> int:
        number = await intent(self)
        recording.set()
        await proceed.wait()
        return number

    monkeypatch.setattr(CallRecord, "intent", record_slowly)
    failures: list[Denied] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            try:
                await crib.call("bench/wait", {}, principal=crib.owner())
            except Denied as error:
                failures.append(error)

        tasks.start_soon(call)
        await recording.wait()
        await crib.kill_switch.stop(by=crib.owner(), door="api")
        proceed.set()
    assert [failure.code for failure in failures] == ["crib.stopped"]
    assert not running.bench.started.is_set()


async def test_stop_ends_sessions_and_refuses_new_sessions_and_runs(sessions: SessionClient) -> None:
    crib = sessions.running.holding.crib
    id = await sessions.create(mode="bypassPermissions")
    await sessions.send(id, "[[script:wait]]")
    await sessions.running.bench.started.wait()
    await sessions.send(id, "[[script:hello]]")
    schedule = await sessions.request(
        "POST", "/api/schedules", {"agentId": "reviewer", "prompt": "[[script:hello]]", "everySeconds": 60,
                                   "cwd": str(sessions.cwd)}, 201,
    )  # fmt: skip
    with anyio.fail_after(SOON):
        await stop(sessions.client)
    session = await sessions.request("GET", f"/api/sessions/{id}")
    assert (session["state"], session["reason"]) == ("interrupted", "The owner stopped everything.")
    assert crib.sessions.active() == ()
    for method, path, body in (
        ("POST", f"/api/sessions/{id}/messages", {"content": "Go on."}),
        ("POST", "/api/sessions", {"runner": "played", "cwd": str(sessions.cwd)}),
        ("POST", f"/api/sessions/{id}/fork", {}),
        ("POST", f"/api/schedules/{schedule['id']}/run", None),
    ):
        assert (await sessions.request(method, path, body, 403))["code"] == "crib.stopped", path
    assert await sessions.request("GET", f"/api/schedules/{schedule['id']}/history") == []
    await sessions.request("POST", "/api/resume-all")
    sent = await sessions.send(id, "[[script:hello]]")
    events = await sessions.until(id, lambda event: event["kind"] == "done", sent["seq"])
    assert events[-1]["reason"] == "completed"


async def test_stop_suspends_named_tokens_and_ends_their_calls(tmp_path: Path) -> None:
    async with open_shop_lab(tmp_path) as shop_lab:
        secret = await shop_lab.token("robot", source="api")
        async with shop_lab.rest(secret) as robot, shop_lab.http(secret) as http, shop_lab.http() as owner:
            async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
                await shop_lab.pending_approval()
                await stop(owner)
            assert call.raised is not None
            refused = await http.get("/api/tools")
            assert (refused.status_code, refused.json()["code"]) == (403, "crib.stopped")
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert (await http.post("/mcp", json=ping)).status_code == 403
            assert shop_lab.shop.sold == []
            assert await shop_lab.owner.permissions.approvals(status="pending") == []
            await shop_lab.owner.resume_all()
            assert (await http.get("/api/tools")).status_code == 200


async def test_stop_ends_upstream_processes_also_after_a_restart(tmp_path: Path) -> None:
    async with open_shop_lab(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as shop_lab:
        standing = next(each for each in await shop_lab.owner.servers() if each["name"] == "changing_tools")
        assert standing["state"] == "connected"
        started = shop_lab.crib.upstreams.status(await shop_lab.crib.servers.find("changing_tools"))
        pid = started.link.pid if started.link is not None else None
        assert pid is not None
        async with shop_lab.http() as owner:
            with anyio.fail_after(SOON):
                await stop(owner)
                await until(lambda: not alive(pid))
        tested = await shop_lab.owner.test_server("changing_tools")
        assert tested["state"] == "failed"
        assert "stopped everything" in tested["lastError"]
        assert await shop_lab.owner.tools(server="changing_tools"), "its tools stay listed"
    async with open_shop_lab(tmp_path) as shop_lab:
        assert (await shop_lab.owner.status())["state"] == "stopped"
        with pytest.raises(Denied) as refused:
            await shop_lab.owner.call(TOOL, {"text": "a"})
        assert refused.value.code == "crib.stopped"
        await shop_lab.owner.resume_all()
        assert not (await shop_lab.owner.call(TOOL, {"text": "a"}))["isError"]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds that no event announces."""
    while True:
        if holds():
            return
        await anyio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_stop_and_resume_are_audited_and_announced(running: Running) -> None:
    crib = running.holding.crib
    notices: list[str] = []
    crib.feed.listen(lambda event: notices.append(event.data["message"]) if event.kind == "notice" else None)
    async with running.client() as client:
        await stop(client, "Drill.")
        await client.post("/api/resume-all")
    changed = [(each["tool"], each["phase"], each["door"]) for each in await changes(running)]
    assert changed == [
        ("crib.stop", "intent", "api"),
        ("crib.stop", "outcome", "api"),
        ("crib.resume", "intent", "api"),
        ("crib.resume", "outcome", "api"),
    ]
    assert (await changes(running))[0]["arguments"] == {"reason": "Drill."}
    assert len(notices) == 2


async def test_manually_removed_stop_marker_is_audited(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running, running.client() as client:
        await stop(client, "Drill.")
        marker = running.holding.crib.home.stop_marker
    marker.unlink()
    async with running_crib(tmp_path / "home"):
        pass
    async with running_crib(tmp_path / "home") as running:
        found = await changes(running)
    assert [each["tool"] for each in found] == ["crib.stop", "crib.stop", "crib.resume"]
    assert found[2]["arguments"] == {"file": str(marker), "removed": "by hand"}


async def test_unrecorded_stop_is_logged_and_audited_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_crib(tmp_path / "home") as running, running.client() as client:
        with monkeypatch.context() as patched:
            patched.setattr(kill_switch, "_ENDING", 0.1)
            patched.setattr(running.holding.crib.audit, "record", never_recorded)
            assert (await stop(client))["state"] == "stopped"
    assert "The stop is not recorded yet: the audit did not accept the record in time." in caplog.messages
    async with running_crib(tmp_path / "home") as running:
        with anyio.fail_after(BOUND):
            while len(await changes(running)) < 2:
                await anyio.lowlevel.checkpoint()


def never_recorded(_: JsonObject) -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def test_only_the_owner_can_stop_and_resume(tmp_path: Path) -> None:
    async with open_shop_lab(tmp_path) as shop_lab:
        secret = await shop_lab.token("robot", source="api", mayApprove=True)
        async with shop_lab.http(secret) as http:
            for path in ("/api/stop-all", "/api/resume-all"):
                assert (await http.post(path, json={})).status_code in (403, 404)
            assert (await http.get("/api/status")).status_code in (403, 404)
        assert (await shop_lab.owner.status())["state"] == "running"


async def test_stop_marker_of_another_process_stops_a_running_crib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_switch, "LOOK_SECONDS", 0.01)
    async with running_crib(tmp_path / "home") as running:
        crib = running.holding.crib
        StopSwitch(crib.home.stop_marker).engage("owner", "From outside.")
        with anyio.fail_after(BOUND):
            while len(await changes(running)) < 2:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(Denied):
            await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())
    async with running_crib(tmp_path / "home") as running:
        assert len(await changes(running)) == 2, "a stop is recorded once"


async def test_stop_command_works_if_the_marker_cannot_be_written(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise ConfigError("home.unsafe", "The disk is full.")

    monkeypatch.setattr(StopSwitch, "_write", full)
    monkeypatch.setattr("toolcrib.cli.crib.until_signalled", nullcontext)  # signals need the main thread
    crib = running.holding.crib
    code = await anyio.to_thread.run_sync(main, ["stop-all", "--json", "--home", str(crib.home.root)])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"]) == (1, "home.unsafe")
    assert error["message"] == "Everything is stopped, but only until this crib ends. The disk is full."
    with pytest.raises(Denied):
        await crib.call("bench/echo", {"text": "a"}, principal=crib.owner())


def test_unreadable_stop_marker_counts_as_stopped(tmp_path: Path) -> None:
    marker = tmp_path / "stopped"
    for content in (b"", b"{", b"[]", b"\xff"):
        marker.write_bytes(content)
        with pytest.raises(Denied):
            StopSwitch(marker).check()
    marker.unlink()
    marker.mkdir()
    with pytest.raises(Denied):
        StopSwitch(marker).check()


def test_commands_stop_and_resume_without_a_running_crib(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.json("stop-all", "--reason", "Night.")["stopped"]["reason"] == "Night."
    refused = shell.run("tools", "call", "lab/greet", '{"name": "Ada"}')
    assert (refused.returncode, "stopped everything" in refused.stderr) == (4, True)
    assert shell.run("tools", "list").returncode == 0
    assert shell.run("resume-all").returncode == 0
    assert shell.run("tools", "call", "lab/greet", '{"name": "Ada"}').returncode == 0
    assert [each["tool"] for each in reversed(shell.json("audit", "--tool", "toolcrib/crib.stop"))] == ["crib.stop"] * 2


def test_stop_command_works_with_an_unusable_database(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    home = Home(Path(shell.json("settings")[0]["value"]))
    home.database.write_bytes(b"This is not a database, whatever its name says." * 100)
    done = shell.run("stop-all")
    assert (done.returncode, home.stop_marker.exists()) == (0, True), done.stderr
    assert "recorded" in done.stderr


async def test_console_has_a_stop_button_and_a_banner(tmp_path: Path) -> None:
    async with open_console(tmp_path / "home") as console:
        page = await console.page("/")
        assert page.one("form", action="/stop-all").one("button").text == "Stop all"
        stopped = await console.send("/stop-all", {"reason": "<b>odd</b>"})
        banner = stopped.one(class_="stopped")
        assert "Everything is stopped" in banner.text
        assert "<b>odd</b>" in banner.text
        assert stopped.all("form", action="/stop-all") == []
        assert console.crib.kill_switch.state is not None
        assert "Everything is stopped" in (await console.part("/stop-all")).text
        resumed = await console.send("/resume-all")
        assert resumed.all(class_="stopped") == []
        records = await console.crib.audit.find(Filters(server="toolcrib"))
        assert {(each["tool"], each["door"]) for each in records} == {
            ("crib.stop", "console"),
            ("crib.resume", "console"),
        }
