"""Tests of one's own tools: the function by itself, the tool as a model meets it, and who may use it."""

import pytest
from injected_tools import Weather, forecast

from toolcrib import testing

pytestmark = pytest.mark.anyio


class Rain(Weather):
    """Another dependency, for the test."""

    def at(self, city: str, day: int) -> str:
        """It always rains."""
        return f"{city}: rain"


async def test_the_function_is_still_a_function() -> None:
    assert await forecast("Ulm", 1, weather=Rain()) == ["Ulm: rain"]


async def test_a_model_reads_the_answer_and_never_sees_what_is_injected() -> None:
    async with testing.crib([forecast], providers={Weather: Rain}) as crib:
        owner = crib.owner(source="cli")
        (listed,) = (each for each in crib.gate.listing(owner).tools if each.ref.server == "tools")
        result = await crib.call(listed.ref, {"city": "Ulm", "days": 1}, principal=owner)
    assert set(listed.input_schema["properties"]) == {"city", "days"}
    assert "Ulm: rain" in result.content[0]["text"]


async def test_a_model_that_is_wrong_reads_why() -> None:
    result = await testing.call(forecast, {"city": "Ulm", "days": "many"}, providers={Weather: Rain})
    assert result.is_error
    assert "days" in result.content[0]["text"]
