"""The numbers and codes of docs/security.md are those of the program."""

import pytest

from docs.pages import page
from toolcrib.model.errors import Unavailable
from toolcrib.web import connections


@pytest.mark.parametrize(
    ("sentence", "holds"),
    [
        ("may hold a quarter of all connections", connections.SHARE == 4),
        ("an eighth of the connections is reserved for the owner", connections.RESERVED == 8),
        ("exits with 5 if it cannot read the database", Unavailable.exit_code == 5),
    ],
)
def test_number_of_the_page_is_that_of_the_program(sentence: str, holds: bool) -> None:
    assert sentence in " ".join(page("security").split())
    assert holds
