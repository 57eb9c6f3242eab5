"""The reference pages are what the code would write, and nothing else lies beside them."""

import pytest

from scripts import reference


@pytest.mark.parametrize("name", reference.REFERENCE)
def test_a_committed_page_equals_what_the_code_writes_now(name: str) -> None:
    committed = (reference.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert committed == reference.REFERENCE[name](), "run `make docs`"


def test_there_is_no_page_that_nothing_writes() -> None:
    assert {path.stem for path in reference.PAGES.glob("*.md")} == set(reference.REFERENCE)


def test_text_of_the_code_cannot_break_a_table() -> None:
    assert reference.table(["a"], [["x | y\nz"]]) == "| a |\n| --- |\n| x \\| y z |"
