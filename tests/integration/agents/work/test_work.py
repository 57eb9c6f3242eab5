"""Work tasks through a whole crib: real git, and a scripted runtime that writes files."""

import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from toolcrib import Crib, Principal, Settings
from toolcrib.agents.sessions.runtime import Brief, SessionHost
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.store.work import load_task, update_task
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedConversation, PlayedRunner

pytestmark = pytest.mark.anyio

SCRIPTS: dict[str, Json] = {
    "text": [{"blocks": [{"text": "I wrote it."}]}],
    "fail": [{"status": 500, "message": "broken"}],
    "hang": [{"hang_s": 600}],
}


class Writer(PlayedRunner):
    """Writes files at the start, as a coding agent would; `plant` and `asks` do more."""

    name = "claude"

    def __init__(self) -> None:
        super().__init__(SCRIPTS)
        self.plant: Callable[[Path], None] = lambda place: None
        self.asks: Callable[[Path], list[tuple[str, JsonObject]]] = lambda place: []
        self.permits: list[bool] = []

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        place = Path(brief.cwd)
        (place / "new.txt").write_text("one\n", encoding="utf-8")
        (place / "old.txt").write_text("changed\n", encoding="utf-8")
        self.plant(place)
        for number, (tool, arguments) in enumerate(self.asks(place)):
            permit = await host.permit(tool, arguments, f"call_{number}")
            self.permits.append(permit.allowed)
            await host.ended(f"call_{number}", is_error=False)
        async with super().open(brief, host) as conversation:
            yield conversation


def git(place: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", "-C", place, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with staged, edited and untracked files."""
    place = tmp_path / "project"
    (place / "sub").mkdir(parents=True)
    for name in ("old.txt", "staged.txt", "edited.txt", "sub/old.txt"):
        (place / name).write_text("original\n", encoding="utf-8")
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "first")
    (place / "staged.txt").write_text("staged\n", encoding="utf-8")
    git(place, "add", "staged.txt")
    (place / "edited.txt").write_text("edited\n", encoding="utf-8")
    (place / "untracked.txt").write_text("untracked\n", encoding="utf-8")
    return place


@asynccontextmanager
async def open_crib(home: Path, project: Path, writer: Writer) -> AsyncGenerator[Crib]:
    settings = Settings(home=home, port=0, default_cwd=project)
    async with Crib(settings, environment=bare_environment(home.parent), services=["runtime"]) as crib:
        crib.runners.add(writer)
        yield crib


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
async def crib(tmp_path: Path, project: Path, writer: Writer) -> AsyncGenerator[Crib]:
    async with open_crib(tmp_path / "home", project, writer) as crib:
        yield crib


def agent_in(project: Path, name: str = "reviewer") -> Principal:
    return Principal("session", "s1", "agent", "acceptEdits", name, None, str(project))


async def edits_without_asking(crib: Crib, agent: str) -> None:
    await crib.zoo.update(agent, AgentChanges.model_validate({"mode": "acceptEdits"}), by="owner")


async def call(crib: Crib, tool: str, principal: Principal, **arguments: Json) -> CallResult:
    return await crib.call(f"crew/{tool}", arguments, principal=principal)


async def create_task(crib: Crib, principal: Principal, script: str = "text", **more: Json) -> JsonObject:
    description = f"Write a file. [[script:{script}]]"
    result = await call(crib, "crib_create_work_task", principal, description=description, **more)
    assert not result.is_error, result.content
    return result.structured_content["task"]


async def task_status(crib: Crib, principal: Principal, id: str) -> JsonObject:
    return (await call(crib, "crib_check_work_status", principal, task_id=id)).structured_content["task"]


async def wait_for_end(crib: Crib, principal: Principal, id: str) -> JsonObject:
    with anyio.fail_after(30):
        while True:
            task = await task_status(crib, principal, id)
            if task["state"] != "running":
                return task
            await anyio.sleep(0.05)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(30):
        while not await condition():  # noqa: ASYNC110 there is no event for what the store has
            await anyio.sleep(0.05)


def snapshot(place: Path) -> dict[str, bytes]:
    """Return the content of all files of a working tree and of its index."""
    files = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
    return {name: content for name, content in files.items() if name == ".git/index" or not name.startswith(".git/")}


async def test_task_runs_on_its_own_branch_and_leaves_the_users_files(crib: Crib, project: Path) -> None:
    before = snapshot(project)
    status, head = git(project, "status", "--porcelain"), git(project, "symbolic-ref", "HEAD")
    principal = agent_in(project)
    created = await create_task(crib, principal)
    assert (created["state"], created["branch"], created["agentId"]) == (
        "running",
        f"toolcrib/{created['id']}",
        "reviewer",
    )
    task = await wait_for_end(crib, principal, created["id"])

    assert (task["state"], task["result"]) == ("completed", "I wrote it.")
    assert "new.txt" in task["diff"]
    assert "2 files changed" in task["diff"]
    assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"
    assert git(project, "show", f"{task['branch']}:edited.txt") == "original\n"
    assert snapshot(project) == before
    assert (git(project, "status", "--porcelain"), git(project, "symbolic-ref", "HEAD")) == (status, head)
    session = await crib.sessions.get(task["sessionId"])
    creator = replace(principal, worktree=task["worktree"])
    assert (session.source, session.agent, session.creator) == ("agent", "reviewer", creator)
    assert Path(session.cwd).is_relative_to(crib.home.work)


async def test_task_in_a_subdirectory_runs_there(crib: Crib, project: Path) -> None:
    principal = agent_in(project)
    task = await wait_for_end(crib, principal, (await create_task(crib, principal, project=str(project / "sub")))["id"])
    assert git(project, "show", f"{task['branch']}:sub/new.txt") == "one\n"
    assert (await crib.sessions.get(task["sessionId"])).cwd == f"{task['worktree']}/sub"


@pytest.mark.parametrize(("script", "state"), [("fail", "failed"), ("hang", "interrupted")])
async def test_work_of_a_failed_task_is_kept(crib: Crib, project: Path, script: str, state: str) -> None:
    principal = agent_in(project)
    created = await create_task(crib, principal, script)
    if script == "hang":

        async def interrupted() -> bool:
            return await crib.sessions.interrupt(created["sessionId"])

        await eventually(interrupted)
    task = await wait_for_end(crib, principal, created["id"])
    assert task["state"] == state
    assert task["reason"]
    assert "new.txt" in task["diff"]


async def test_task_lost_with_its_crib_is_interrupted_and_its_work_kept(
    tmp_path: Path, project: Path, writer: Writer
) -> None:
    principal = agent_in(project)
    async with open_crib(tmp_path / "home", project, writer) as crib:
        created = await create_task(crib, principal, "hang")
        written = anyio.Path(created["worktree"], "old.txt")
        await eventually(lambda: has(written, "changed\n"))
    async with open_crib(tmp_path / "home", project, writer) as crib:
        task = await task_status(crib, principal, created["id"])
        assert task["state"] == "interrupted"
        assert "crib" in task["reason"]

        async def is_kept() -> bool:
            return "new.txt" in (await task_status(crib, principal, created["id"])).get("diff", "")

        await eventually(is_kept)
        assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"


async def test_task_still_marked_running_is_interrupted_at_the_next_start(
    tmp_path: Path, project: Path, writer: Writer
) -> None:
    principal = agent_in(project)
    async with open_crib(tmp_path / "home", project, writer) as crib:
        done = await wait_for_end(crib, principal, (await create_task(crib, principal))["id"])
        await _set_running(crib, done["id"])
    async with open_crib(tmp_path / "home", project, writer) as crib:
        task = await task_status(crib, principal, done["id"])
        assert (task["state"], "stopped during the task" in task["reason"]) == ("interrupted", True)


async def test_cleared_task_loses_its_worktree_and_keeps_its_branch(crib: Crib, project: Path) -> None:
    principal = agent_in(project)
    task = await wait_for_end(crib, principal, (await create_task(crib, principal))["id"])
    cleared = await crib.work.clear(task["id"])
    assert cleared.worktree is None
    assert not await anyio.Path(task["worktree"]).exists()
    assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"
    assert git(project, "worktree", "list").count("\n") == 1


async def test_task_runs_no_program_that_the_repository_configures(
    crib: Crib, project: Path, writer: Writer, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n", encoding="utf-8")
    program.chmod(0o755)
    for hook in ("post-checkout", "pre-commit", "post-commit", "commit-msg", "reference-transaction"):
        (project / ".git" / "hooks" / hook).parent.mkdir(exist_ok=True)
        (project / ".git" / "hooks" / hook).symlink_to(program)
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.external", "filter.e=v.l.clean"):
        git(project, "config", key, str(program))
    git(project, "config", "filter.evil.required", "true")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("* filter=evil\n", encoding="utf-8")

    def plant(place: Path) -> None:
        (place / ".gitattributes").write_text("new.txt filter=evil\nold.txt filter=e=v.l\n", encoding="utf-8")
        (place / ".git").unlink()
        git(place, "init", "--quiet")
        git(place, "config", "core.fsmonitor", str(program))

    writer.plant = plant
    mark.unlink(missing_ok=True)
    principal = agent_in(project)
    task = await wait_for_end(crib, principal, (await create_task(crib, principal))["id"])
    assert (task["state"], task.get("reason")) == ("completed", None)
    assert "new.txt" in task["diff"]
    assert not mark.exists()


@pytest.mark.parametrize("inside", [".", "sub"])
async def test_task_edits_only_its_own_worktree_without_approval(
    crib: Crib, project: Path, writer: Writer, inside: str
) -> None:
    """The task and its creator are in acceptEdits; edits elsewhere need approval."""
    writer.asks = lambda place: [
        ("Write", {"file_path": str(place / "a.py"), "content": ""}),
        ("Edit", {"file_path": "old.txt"}),
        ("Read", {"file_path": str(place / "old.txt")}),
        ("Write", {"file_path": str(crib.home.token_file), "content": ""}),
        ("Write", {"file_path": str(crib.home.tools / "evil.py"), "content": ""}),
        ("Read", {"file_path": str(crib.home.work / "other" / "x")}),
    ]
    await edits_without_asking(crib, "builder")
    principal = agent_in(project / inside, "builder")
    task = await create_task(crib, principal)
    assert (await wait_for_end(crib, principal, task["id"]))["state"] == "completed"
    assert writer.permits == [True, True, True, False, False, False]


async def test_task_has_no_rights_in_the_directory_of_its_creator(crib: Crib, project: Path, writer: Writer) -> None:
    await edits_without_asking(crib, "builder")
    creator_principal = agent_in(project, "builder")
    task = await create_task(crib, creator_principal)
    await wait_for_end(crib, creator_principal, task["id"])
    session = await crib.sessions.get(task["sessionId"])
    for file in (project / "old.txt", project / ".git" / "config", Path(session.cwd) / ".git"):
        why = await crib.why("claude_code/Edit", principal=session.principal, arguments={"file_path": str(file)})
        assert why.verdict == "ask"
    edited: JsonObject = {"file_path": f"{session.cwd}/old.txt"}
    assert (await crib.why("claude_code/Edit", principal=session.principal, arguments=edited)).verdict == "allow"
    assert (await crib.why("claude_code/Edit", principal=creator_principal, arguments=edited)).verdict == "deny"


async def test_task_in_the_home_is_refused(crib: Crib) -> None:
    principal = agent_in(crib.home.root.parent)
    result = await call(crib, "crib_create_work_task", principal, description="x", project="home/tools")
    assert "closed to agents" in str(result.content)


async def test_task_needs_a_repository_with_a_commit(crib: Crib, tmp_path: Path) -> None:
    bare, empty = tmp_path / "bare", tmp_path / "empty"
    bare.mkdir()
    empty.mkdir()
    git(empty, "init", "--quiet")
    for place, words in ((bare, "not in a git repository"), (empty, "no commit yet")):
        result = await call(crib, "crib_create_work_task", agent_in(place), description="x")
        assert result.is_error
        assert words in str(result.content)


async def test_agent_creates_tasks_only_in_its_own_directory(crib: Crib, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (project / "link").symlink_to(other)
    principal = agent_in(project)
    for place in (str(other), str(project / "link"), "..", str(project.parent)):
        result = await call(crib, "crib_create_work_task", principal, description="x", project=place)
        assert result.is_error
        assert "is not in" in str(result.content)
    deep = replace(principal, creator=replace(principal, creator=replace(principal, creator=principal)))
    assert "was delegated" in str((await call(crib, "crib_create_work_task", deep, description="x")).content)


async def test_task_is_visible_only_to_its_creator(crib: Crib, project: Path) -> None:
    principal, other = agent_in(project), agent_in(project, "builder")
    task = await wait_for_end(crib, principal, (await create_task(crib, principal))["id"])
    result = await call(crib, "crib_check_work_status", other, task_id=task["id"])
    assert result.is_error
    listed = await call(crib, "crib_list_work_tasks", other)
    assert listed.structured_content == {"tasks": []}
    own_tasks = (await call(crib, "crib_list_work_tasks", principal, status="completed")).structured_content["tasks"]
    assert [(each["id"], "result" in each) for each in own_tasks] == [(task["id"], False)]


async def test_running_tasks_are_limited(crib: Crib, project: Path) -> None:
    principal = agent_in(project)
    for _ in range(4):
        await create_task(crib, principal, "hang")
    result = await call(crib, "crib_create_work_task", principal, description="x")
    assert result.is_error
    assert "limit reached" in str(result.content)


async def test_work_tools_are_missing_without_a_runtime(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.host.builtin.has_runtime", lambda: False)
    settings = Settings(home=tmp_path / "home", port=0, default_cwd=project)
    async with Crib(settings, environment=bare_environment(tmp_path)) as crib:
        offered = {ref.tool for ref in crib.catalog.snapshot.tools if ref.server == "crew"}
        assert not {tool for tool in offered if "work" in tool}
        why = await crib.why("crew/crib_create_work_task", principal=crib.owner(source="web"))
        assert "a runtime for agents" in why.decided_by.reason


async def has(path: anyio.Path, text: str) -> bool:
    return await path.exists() and await path.read_text() == text


async def _set_running(crib: Crib, id: str) -> None:
    """Mark a task as running, as after a kill."""
    task = await load_task(crib.store, id)
    assert task is not None
    await update_task(crib.store, replace(task, state="running", ended_at=None))
