"""Tests of your own tools: as a plain function, and as a model calls them."""

import pytest
from injected_tools import Weather, forecast

from toolcrib import testing

pytestmark = pytest.mark.anyio


class Rain(Weather):
    """A dependency for the test."""

    def at(self, city: str, day: int) -> str:
        """Return rain for every day."""
        return f"{city}: rain"


async def test_function_can_be_called_directly() -> None:
    assert await forecast("Ulm", 1, weather=Rain()) == ["Ulm: rain"]


async def test_model_receives_the_answer_and_no_injected_parameter() -> None:
    async with testing.crib([forecast], providers={Weather: Rain}) as crib:
        owner = crib.owner(source="cli")
        (listed,) = (each for each in crib.gate.listing(owner).tools if each.ref.server == "tools")
        result = await crib.call(listed.ref, {"city": "Ulm", "days": 1}, principal=owner)
    assert set(listed.input_schema["properties"]) == {"city", "days"}
    assert "Ulm: rain" in result.content[0]["text"]


async def test_invalid_arguments_return_an_error_with_the_reason() -> None:
    result = await testing.call(forecast, {"city": "Ulm", "days": "many"}, providers={Weather: Rain})
    assert result.is_error
    assert "days" in result.content[0]["text"]
