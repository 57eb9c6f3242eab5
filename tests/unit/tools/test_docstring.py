"""Docstrings: which text becomes the description and which the parameters, without loss."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.tools.define import read_doc, split_doc

FULL = """Forecast for a city.

Use when asked about weather.

Args:
    city: Its name,
        as people write it.
    days (int): How many.

Returns:
    One entry per day.
"""


def test_section_of_arguments_becomes_the_parameters() -> None:
    doc = split_doc(FULL, ["city", "days"])
    assert doc.parameters == {"city": "Its name, as people write it.", "days": "How many."}
    assert doc.description == (
        "Forecast for a city.\n\nUse when asked about weather.\n\nReturns:\n    One entry per day."
    )


def test_section_with_an_unknown_name_stays_text() -> None:
    doc = split_doc(FULL, ["city"])
    assert doc.description == FULL
    assert doc.parameters == {}


def test_section_of_prose_stays_text() -> None:
    text = "Run.\n\nArgs:\n    as many as you like"
    assert split_doc(text, ["city"]).description == text


def test_docstring_without_a_section_is_the_description() -> None:
    def forecast() -> None:
        """Forecast for a city.

        Indented.
        """

    assert read_doc(forecast, []).description == "Forecast for a city.\n\nIndented."


def test_missing_docstring_is_an_empty_description() -> None:
    assert read_doc(lambda: None, []).description == ""


@given(st.text())
def test_any_text_can_be_a_docstring(text: str) -> None:
    doc = split_doc(text, ["a"])
    assert doc.description == text or doc.parameters.keys() == {"a"}


NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
TEXTS = st.from_regex(r"[a-z]{1,9}( [a-z]{1,9}){0,4}", fullmatch=True)


@given(st.dictionaries(NAMES, TEXTS, min_size=1))
def test_text_of_each_parameter_is_read_back(docs: dict[str, str]) -> None:
    lines = [f"    {name}: {text}" for name, text in docs.items()]
    doc = split_doc("\n".join(["Run it.", "", "Args:", *lines]), docs)
    assert doc.parameters == docs
    assert doc.description == "Run it."
