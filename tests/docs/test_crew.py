"""docs/crew.md lists the crew tools with their marks, and its commands work."""

import re
from pathlib import Path

from docs.pages import commands, follow, page, reader
from toolcrib.builtin.crew.server import crew_server

PAGE = page("crew")
LISTED: dict[str, str] = dict(re.findall(r"`(crib_\w+)`(?: \(([ps, ]+)\))?[,| ]", PAGE.split("## ")[0]))


def test_table_lists_every_tool_without_requirements_and_its_marks() -> None:
    definitions = crew_server({}).definitions.items()
    marks = {name: definition.marks for name, definition in definitions if not definition.requires}
    assert set(marks) <= set(LISTED)
    for name, mark in marks.items():
        assert ("p" in LISTED[name], "s" in LISTED[name]) == (mark.privileged, mark.scheduler_blocked), name


def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    person = reader(tmp_path)
    lines = commands(PAGE)
    assert len(lines) == 6
    with person.serving():
        output = "".join(follow(person, lines))
    assert "deploy" in output
    assert '"complete":true' in output
