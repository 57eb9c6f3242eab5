"""Claude Code's own transcripts are found by directory, named and read; invalid ones are skipped."""

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


def write_transcript(config: Path, cwd: str, id: str, *lines: JsonObject | str, at: float = 1_000_000) -> Path:
    """Write a transcript as Claude Code does."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in cwd)
    folder = config / "projects" / (name if len(name) <= 200 else f"{name[:200]}-1abc")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{id}.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    os.utime(file, (at, at))
    return file


def transcripts(config: Path, known: Set[str] = frozenset()) -> Transcripts:
    async def known_in(cwd: str | None) -> Set[str]:
        return known

    return Transcripts(config, known_in)


async def test_conversations_of_a_directory_are_found_most_recent_first(tmp_path: Path) -> None:
    write_transcript(tmp_path, CWD, FIRST, user("Mend the door\nplease"))
    write_transcript(tmp_path, CWD, SECOND, user("Paint it"), {"type": "ai-title", "aiTitle": "Painting"}, at=2_000_000)
    write_transcript(tmp_path, "/elsewhere", "33333333-2222-3333-4444-555555555555", user("Hello", cwd="/elsewhere"))
    kept = transcripts(tmp_path)
    found = await kept.find(CWD, 10)
    assert [(each.id, each.title, each.cwd) for each in found] == [
        (SECOND, "Painting", CWD),
        (FIRST, "Mend the door", CWD),
    ]
    assert len(await kept.find(None, 10)) == 3
    assert len(await kept.find(None, 1)) == 1
    assert await kept.count(CWD) == 2


async def test_sessions_of_the_crib_are_left_out(tmp_path: Path) -> None:
    write_transcript(tmp_path, CWD, FIRST, user("Mend the door"))
    kept = transcripts(tmp_path, {FIRST})
    assert await kept.find(CWD, 10) == []
    assert await kept.count(CWD) == 0


async def test_directory_with_a_long_name_is_found(tmp_path: Path) -> None:
    cwd = "/" + "deep/" * 60
    write_transcript(tmp_path, cwd, FIRST, user("Mend the door"))
    assert await transcripts(tmp_path).count(cwd) == 1


async def test_missing_transcript_folder_yields_nothing(tmp_path: Path) -> None:
    kept = transcripts(tmp_path / "nowhere")
    assert await kept.find(CWD, 10) == []
    assert await kept.count(CWD) == 0
    assert [each async for each in kept.read(FIRST)] == []
    assert not await kept.holds(FIRST)


@pytest.mark.parametrize("id", ["../../secret", "*", "x", f"{FIRST}/..", ""])
async def test_only_a_valid_id_is_looked_up(tmp_path: Path, id: str) -> None:
    write_transcript(tmp_path, CWD, FIRST, user("Mend the door"))
    (tmp_path / "secret.jsonl").write_text("{}")
    assert not await transcripts(tmp_path).holds(id)


async def test_damaged_and_unknown_lines_are_skipped(tmp_path: Path) -> None:
    lines: list[JsonObject | str] = [
        "", "not json", "[1]", '{"type": "user"}', '{"type": "user", "message": 5}', '{"type": "future", "x": 1}',
        user("<command-name>/clear</command-name>"), user("hidden", isMeta=True), user("aside", isSidechain=True),
        {"type": "assistant", "message": {"content": [5, {"type": "new"}, {"type": "text"}]}},
        user("Mend the door", uuid="u", timestamp="2026-01-02T03:04:05Z"), '{"type": "user", "mess',
    ]  # fmt: skip
    write_transcript(tmp_path, CWD, FIRST, *lines)
    kept = transcripts(tmp_path)
    (found,) = await kept.find(CWD, 10)
    assert found.title == "Mend the door"
    events = [each async for each in kept.read(FIRST)]
    assert [each.data.get("content") for each in events if each.kind == "user_message"] == ["Mend the door"]
    assert [each.seq for each in events] == list(range(1, len(events) + 1))
    assert events[-1].at == "2026-01-02T03:04:05Z"


async def test_file_without_messages_is_ignored(tmp_path: Path) -> None:
    write_transcript(tmp_path, CWD, FIRST, {"type": "permission-mode", "mode": "plan"})
    assert await transcripts(tmp_path).find(CWD, 10) == []
