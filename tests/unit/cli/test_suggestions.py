"""Suggestions for unknown names."""

import pytest

from toolcrib.cli.suggestions import similar

TOOLS = ["toolcrib/ping", "toolcrib/get_config", "github/list_issues"]


@pytest.mark.parametrize(
    ("known", "words", "found"),
    [
        (["cursor", "codex", "zed"], ["connect", "curser"], ["cursor"]),
        (["reviewer"], ["agents", "show", "Reviwer", "--json"], ["reviewer"]),
        (TOOLS, ["tools", "show", "git/list_issues"], ["github/list_issues"]),
        (["time"], ["mcp", "test", "time"], []),
        (["time"], ["mcp", "test", "weather"], []),
        ([], ["mcp", "test", "weather"], []),
        (["json"], ["--json"], []),
    ],
)
def test_most_similar_known_name_is_suggested(known: list[str], words: list[str], found: list[str]) -> None:
    assert similar(known, words) == found
