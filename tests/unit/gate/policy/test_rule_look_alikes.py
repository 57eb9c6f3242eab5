"""Rules that resemble rules about something else are reported, and others are not."""

import pytest

from toolcrib.gate.policy.rule_look_alikes import look_alikes
from toolcrib.model.policy import Rule, RuleOrigin
from toolcrib.model.tools import ToolRef

KNOWN = [ToolRef("files", "read_file"), ToolRef("files", "write_file"), ToolRef("other", "readFile")]


def messages(pattern: str) -> list[str]:
    rule = Rule("r1", "deny", pattern, origin=RuleOrigin("user"))
    return [problem.message for problem in look_alikes([rule], KNOWN)]


@pytest.mark.parametrize("pattern", ["files/read_file", "files/*", "*", "*/read-file", "files/read_*", "new/tool", ""])
def test_rule_that_names_existing_or_distinct_tools_has_no_problem(pattern: str) -> None:
    assert messages(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("files/read-file", '"read_file"'),
        ("files/readFile", '"read_file"'),
        ("f1les/*", '"files"'),
        ("fi\u217ces/read_file", "hidden or look like others"),
        ("files/read_file\u200b", "hidden or look like others"),
        ("files/read\u00a0file", "hidden or look like others"),
    ],
)
def test_rule_that_looks_like_another_name_is_reported(pattern: str, named: str) -> None:
    assert any(named in message for message in messages(pattern))
    assert all(message.isprintable() and "\u00a0" not in message for message in messages(pattern))
