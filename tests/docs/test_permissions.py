"""docs/permissions.md: its commands, run in order in an empty HOME, and the rules it shows."""

import re
from pathlib import Path

from docs.pages import commands, follow, page, reader
from toolcrib.gate.policy.limits import read_limits_file
from toolcrib.gate.policy.patterns import Names
from toolcrib.gate.policy.rule_parser import read_rules_file

PAGE = page("permissions")


def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    person = reader(tmp_path)
    lines = commands(PAGE)
    assert len(lines) >= 15
    with person.serving():
        follow(person, lines)
    assert (tmp_path / "records.jsonl").read_bytes().count(b"\n") > 0


def test_rules_and_limits_of_the_page_are_valid() -> None:
    shown = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    read = [read_rules_file(each, "toolcrib.toml", "user", Names()) for each in shown]
    assert [(len(each.rules), each.problems) for each in read] == [(2, ()), (0, ()), (2, ()), (0, ())]
    limits = [read_limits_file(each, "toolcrib.toml") for each in shown]
    assert [(len(each.limits), each.problems) for each in limits] == [(0, ()), (0, ()), (0, ()), (1, ())]
