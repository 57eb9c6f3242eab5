"""The reference pages are up to date, and there are no others."""

import pytest

from scripts import reference


@pytest.mark.parametrize("name", reference.REFERENCE)
def test_committed_page_is_up_to_date(name: str) -> None:
    committed = (reference.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert committed == reference.REFERENCE[name](), "run `make docs`"


def test_every_reference_page_is_generated() -> None:
    assert {path.stem for path in reference.PAGES.glob("*.md")} == set(reference.REFERENCE)


def test_table_escapes_text_of_the_code() -> None:
    assert reference.table(["a"], [["x | y\nz"]]) == "| a |\n| --- |\n| x \\| y z |"
