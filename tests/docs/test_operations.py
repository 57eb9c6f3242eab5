"""The commands of docs/operations.md, run in order in an empty HOME."""

from pathlib import Path

from docs.pages import commands, follow, page, reader


def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    person = reader(tmp_path)
    lines = commands(page("operations"))
    assert len(lines) >= 10
    with person.serving():
        follow(person, lines)
