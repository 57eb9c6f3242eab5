"""What Claude Code kept by itself: found by directory, named, read, and never a reason to fail."""

import json
import os
from collections.abc import Set
from pathlib import Path

import pytest

from toolcrib.agents.sessions.transcripts import Transcripts
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

FIRST = "11111111-2222-3333-4444-555555555555"
SECOND = "99999999-2222-3333-4444-555555555555"
CWD = "/home/me/my_project.x"


def user(text: str, **more: object) -> JsonObject:
    return {"type": "user", "cwd": CWD, "message": {"role": "user", "content": text}, **more}


def keep(config: Path, cwd: str, id: str, *lines: JsonObject | str, at: float = 1_000_000) -> Path:
    """A file as Claude Code would write it."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in cwd)
    folder = config / "projects" / (name if len(name) <= 200 else f"{name[:200]}-1abc")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{id}.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    os.utime(file, (at, at))
    return file


def transcripts(config: Path, known: Set[str] = frozenset()) -> Transcripts:
    async def of(cwd: str | None) -> Set[str]:
        return known

    return Transcripts(config, of)


async def test_conversations_of_a_directory_are_found_the_last_used_first(tmp_path: Path) -> None:
    keep(tmp_path, CWD, FIRST, user("Mend the door\nplease"))
    keep(tmp_path, CWD, SECOND, user("Paint it"), {"type": "ai-title", "aiTitle": "Painting"}, at=2_000_000)
    keep(tmp_path, "/elsewhere", "33333333-2222-3333-4444-555555555555", user("Hello", cwd="/elsewhere"))
    kept = transcripts(tmp_path)
    found = await kept.find(CWD, 10)
    assert [(each.id, each.title, each.cwd) for each in found] == [
        (SECOND, "Painting", CWD),
        (FIRST, "Mend the door", CWD),
    ]
    assert len(await kept.find(None, 10)) == 3
    assert len(await kept.find(None, 1)) == 1
    assert await kept.count(CWD) == 2


async def test_what_the_crib_knows_as_its_own_is_left_out(tmp_path: Path) -> None:
    keep(tmp_path, CWD, FIRST, user("Mend the door"))
    kept = transcripts(tmp_path, {FIRST})
    assert await kept.find(CWD, 10) == []
    assert await kept.count(CWD) == 0


async def test_a_directory_with_a_long_name_is_found(tmp_path: Path) -> None:
    cwd = "/" + "deep/" * 60
    keep(tmp_path, cwd, FIRST, user("Mend the door"))
    assert await transcripts(tmp_path).count(cwd) == 1


async def test_where_claude_code_never_ran_there_is_nothing(tmp_path: Path) -> None:
    kept = transcripts(tmp_path / "nowhere")
    assert await kept.find(CWD, 10) == []
    assert await kept.count(CWD) == 0
    assert [each async for each in kept.read(FIRST)] == []
    assert not await kept.holds(FIRST)


@pytest.mark.parametrize("id", ["../../secret", "*", "x", f"{FIRST}/..", ""])
async def test_only_an_id_is_looked_for(tmp_path: Path, id: str) -> None:
    keep(tmp_path, CWD, FIRST, user("Mend the door"))
    (tmp_path / "secret.jsonl").write_text("{}")
    assert not await transcripts(tmp_path).holds(id)


async def test_damaged_foreign_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    lines: list[JsonObject | str] = [
        "", "not json", "[1]", '{"type": "user"}', '{"type": "user", "message": 5}', '{"type": "future", "x": 1}',
        user("<command-name>/clear</command-name>"), user("hidden", isMeta=True), user("aside", isSidechain=True),
        {"type": "assistant", "message": {"content": [5, {"type": "new"}, {"type": "text"}]}},
        user("Mend the door", uuid="u", timestamp="2026-01-02T03:04:05Z"), '{"type": "user", "mess',
    ]  # fmt: skip
    keep(tmp_path, CWD, FIRST, *lines)
    kept = transcripts(tmp_path)
    (found,) = await kept.find(CWD, 10)
    assert found.title == "Mend the door"
    events = [each async for each in kept.read(FIRST)]
    assert [each.data.get("content") for each in events if each.kind == "user_message"] == ["Mend the door"]
    assert [each.seq for each in events] == list(range(1, len(events) + 1))
    assert events[-1].at == "2026-01-02T03:04:05Z"


async def test_a_file_in_which_nobody_spoke_is_none(tmp_path: Path) -> None:
    keep(tmp_path, CWD, FIRST, {"type": "permission-mode", "mode": "plan"})
    assert await transcripts(tmp_path).find(CWD, 10) == []
