"""Work tasks through a whole crib: real git, a runtime that plays scripts and writes files where it works."""

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
    """Writes files before it speaks, as a coding agent would; `plant` may do more in the directory."""

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
    """A repository whose working tree has something of every kind."""
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
async def opened(home: Path, project: Path, writer: Writer) -> AsyncGenerator[Crib]:
    settings = Settings(home=home, port=0, default_cwd=project)
    async with Crib(settings, environment=bare_environment(home.parent), services=["runtime"]) as crib:
        crib.runners.add(writer)
        yield crib


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
async def crib(tmp_path: Path, project: Path, writer: Writer) -> AsyncGenerator[Crib]:
    async with opened(tmp_path / "home", project, writer) as crib:
        yield crib


def agent_in(project: Path, name: str = "reviewer") -> Principal:
    return Principal("session", "s1", "agent", "acceptEdits", name, None, str(project))


async def edits_without_asking(crib: Crib, agent: str) -> None:
    await crib.zoo.update(agent, AgentChanges.model_validate({"mode": "acceptEdits"}), by="owner")


async def called(crib: Crib, tool: str, principal: Principal, **arguments: Json) -> CallResult:
    return await crib.call(f"crew/{tool}", arguments, principal=principal)


async def given(crib: Crib, principal: Principal, script: str = "text", **more: Json) -> JsonObject:
    description = f"Write a file. [[script:{script}]]"
    result = await called(crib, "crib_create_work_task", principal, description=description, **more)
    assert not result.is_error, result.content
    return result.structured_content["task"]


async def standing(crib: Crib, principal: Principal, id: str) -> JsonObject:
    return (await called(crib, "crib_check_work_status", principal, task_id=id)).structured_content["task"]


async def ended(crib: Crib, principal: Principal, id: str) -> JsonObject:
    with anyio.fail_after(30):
        while True:
            task = await standing(crib, principal, id)
            if task["state"] != "running":
                return task
            await anyio.sleep(0.05)


async def eventually(so: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(30):
        while not await so():  # noqa: ASYNC110 there is no event for what the store has
            await anyio.sleep(0.05)


def all_of(place: Path) -> dict[str, bytes]:
    """The files of a working tree and its index, as they are."""
    files = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
    return {name: content for name, content in files.items() if name == ".git/index" or not name.startswith(".git/")}


async def test_a_task_is_done_on_a_branch_of_its_own_and_the_users_files_stay(crib: Crib, project: Path) -> None:
    before = all_of(project)
    status, head = git(project, "status", "--porcelain"), git(project, "symbolic-ref", "HEAD")
    me = agent_in(project)
    begun = await given(crib, me)
    assert (begun["state"], begun["branch"], begun["agentId"]) == ("running", f"toolcrib/{begun['id']}", "reviewer")
    task = await ended(crib, me, begun["id"])

    assert (task["state"], task["result"]) == ("completed", "I wrote it.")
    assert "new.txt" in task["diff"]
    assert "2 files changed" in task["diff"]
    assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"
    assert git(project, "show", f"{task['branch']}:edited.txt") == "original\n"
    assert all_of(project) == before
    assert (git(project, "status", "--porcelain"), git(project, "symbolic-ref", "HEAD")) == (status, head)
    session = await crib.sessions.get(task["sessionId"])
    creator = replace(me, worktree=task["worktree"])
    assert (session.source, session.agent, session.creator) == ("agent", "reviewer", creator)
    assert Path(session.cwd).is_relative_to(crib.home.work)


async def test_a_task_in_a_directory_of_a_repository_is_done_there(crib: Crib, project: Path) -> None:
    me = agent_in(project)
    task = await ended(crib, me, (await given(crib, me, project=str(project / "sub")))["id"])
    assert git(project, "show", f"{task['branch']}:sub/new.txt") == "one\n"
    assert (await crib.sessions.get(task["sessionId"])).cwd == f"{task['worktree']}/sub"


@pytest.mark.parametrize(("script", "state"), [("fail", "failed"), ("hang", "interrupted")])
async def test_what_was_done_until_a_task_failed_is_kept(crib: Crib, project: Path, script: str, state: str) -> None:
    me = agent_in(project)
    begun = await given(crib, me, script)
    if script == "hang":

        async def interrupted() -> bool:
            return await crib.sessions.interrupt(begun["sessionId"])

        await eventually(interrupted)
    task = await ended(crib, me, begun["id"])
    assert task["state"] == state
    assert task["reason"]
    assert "new.txt" in task["diff"]


async def test_a_task_that_is_lost_with_its_crib_is_interrupted_and_its_work_is_on_the_branch(
    tmp_path: Path, project: Path, writer: Writer
) -> None:
    me = agent_in(project)
    async with opened(tmp_path / "home", project, writer) as crib:
        begun = await given(crib, me, "hang")
        written = anyio.Path(begun["worktree"], "old.txt")
        await eventually(lambda: has(written, "changed\n"))
    async with opened(tmp_path / "home", project, writer) as crib:
        task = await standing(crib, me, begun["id"])
        assert task["state"] == "interrupted"
        assert "crib" in task["reason"]

        async def is_kept() -> bool:
            return "new.txt" in (await standing(crib, me, begun["id"])).get("diff", "")

        await eventually(is_kept)
        assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"


async def test_a_task_found_running_by_the_next_crib_is_interrupted(
    tmp_path: Path, project: Path, writer: Writer
) -> None:
    me = agent_in(project)
    async with opened(tmp_path / "home", project, writer) as crib:
        done = await ended(crib, me, (await given(crib, me))["id"])
        await _set_running(crib, done["id"])
    async with opened(tmp_path / "home", project, writer) as crib:
        task = await standing(crib, me, done["id"])
        assert (task["state"], "stopped during the task" in task["reason"]) == ("interrupted", True)


async def test_the_worktree_goes_on_demand_and_the_branch_stays(crib: Crib, project: Path) -> None:
    me = agent_in(project)
    task = await ended(crib, me, (await given(crib, me))["id"])
    cleared = await crib.work.clear(task["id"])
    assert cleared.worktree is None
    assert not await anyio.Path(task["worktree"]).exists()
    assert git(project, "show", f"{task['branch']}:new.txt") == "one\n"
    assert git(project, "worktree", "list").count("\n") == 1


async def test_no_program_that_a_repository_names_is_run(
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
    me = agent_in(project)
    task = await ended(crib, me, (await given(crib, me))["id"])
    assert (task["state"], task.get("reason")) == ("completed", None)
    assert "new.txt" in task["diff"]
    assert not mark.exists()


@pytest.mark.parametrize("inside", [".", "sub"])
async def test_a_task_edits_its_own_worktree_unattended_and_nothing_else(
    crib: Crib, project: Path, writer: Writer, inside: str
) -> None:
    """Both the task and the session that gave it are in acceptEdits; edits elsewhere would have to be asked for."""
    writer.asks = lambda place: [
        ("Write", {"file_path": str(place / "a.py"), "content": ""}),
        ("Edit", {"file_path": "old.txt"}),
        ("Read", {"file_path": str(place / "old.txt")}),
        ("Write", {"file_path": str(crib.home.token_file), "content": ""}),
        ("Write", {"file_path": str(crib.home.tools / "evil.py"), "content": ""}),
        ("Read", {"file_path": str(crib.home.work / "other" / "x")}),
    ]
    await edits_without_asking(crib, "builder")
    me = agent_in(project / inside, "builder")
    task = await given(crib, me)
    assert (await ended(crib, me, task["id"]))["state"] == "completed"
    assert writer.permits == [True, True, True, False, False, False]


async def test_a_task_gains_nothing_in_the_directory_of_its_creator(crib: Crib, project: Path, writer: Writer) -> None:
    await edits_without_asking(crib, "builder")
    asker = agent_in(project, "builder")
    task = await given(crib, asker)
    await ended(crib, asker, task["id"])
    session = await crib.sessions.get(task["sessionId"])
    for file in (project / "old.txt", project / ".git" / "config", Path(session.cwd) / ".git"):
        why = await crib.why("claude_code/Edit", principal=session.principal, arguments={"file_path": str(file)})
        assert why.verdict == "ask"
    edited: JsonObject = {"file_path": f"{session.cwd}/old.txt"}
    assert (await crib.why("claude_code/Edit", principal=session.principal, arguments=edited)).verdict == "allow"
    assert (await crib.why("claude_code/Edit", principal=asker, arguments=edited)).verdict == "deny"


async def test_a_task_in_the_home_is_refused(crib: Crib) -> None:
    me = agent_in(crib.home.root.parent)
    result = await called(crib, "crib_create_work_task", me, description="x", project="home/tools")
    assert "closed to agents" in str(result.content)


async def test_a_directory_without_a_repository_or_without_a_commit_is_refused(crib: Crib, tmp_path: Path) -> None:
    bare, empty = tmp_path / "bare", tmp_path / "empty"
    bare.mkdir()
    empty.mkdir()
    git(empty, "init", "--quiet")
    for place, words in ((bare, "not in a git repository"), (empty, "no commit yet")):
        result = await called(crib, "crib_create_work_task", agent_in(place), description="x")
        assert result.is_error
        assert words in str(result.content)


async def test_a_program_gives_work_where_it_works_and_nowhere_else(crib: Crib, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (project / "link").symlink_to(other)
    me = agent_in(project)
    for place in (str(other), str(project / "link"), "..", str(project.parent)):
        result = await called(crib, "crib_create_work_task", me, description="x", project=place)
        assert result.is_error
        assert "is not in" in str(result.content)
    deep = replace(me, creator=replace(me, creator=replace(me, creator=me)))
    assert "was delegated" in str((await called(crib, "crib_create_work_task", deep, description="x")).content)


async def test_who_did_not_give_a_task_does_not_see_it(crib: Crib, project: Path) -> None:
    me, other = agent_in(project), agent_in(project, "builder")
    task = await ended(crib, me, (await given(crib, me))["id"])
    result = await called(crib, "crib_check_work_status", other, task_id=task["id"])
    assert result.is_error
    listed = await called(crib, "crib_list_work_tasks", other)
    assert listed.structured_content == {"tasks": []}
    mine = (await called(crib, "crib_list_work_tasks", me, status="completed")).structured_content["tasks"]
    assert [(each["id"], "result" in each) for each in mine] == [(task["id"], False)]


async def test_only_so_many_tasks_run_at_once(crib: Crib, project: Path) -> None:
    me = agent_in(project)
    for _ in range(4):
        await given(crib, me, "hang")
    result = await called(crib, "crib_create_work_task", me, description="x")
    assert result.is_error
    assert "limit reached" in str(result.content)


async def test_without_a_runtime_the_tools_are_not_there_and_why_says_so(
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
    """As if the crib had died in the middle."""
    task = await load_task(crib.store, id)
    assert task is not None
    await update_task(crib.store, replace(task, state="running", ended_at=None))
