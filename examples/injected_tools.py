"""Tools with an injected dependency: the model sees `city` and `days`; the function also receives a `Weather`."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from toolcrib import Crib, Inject, Settings, ToolServer, tool


class Weather:
    """A dependency that tools share, such as a database or an API client."""

    def at(self, city: str, day: int) -> str:
        """Return the forecast for one day."""
        return f"{city}, day {day}: sunny"


@tool(read_only=True)
async def forecast(city: str, days: Annotated[int, "1 to 7"] = 3, *, weather: Annotated[Weather, Inject]) -> list[str]:
    """Return the forecast for a city, one line per day. Use when asked about weather."""
    return [weather.at(city, day) for day in range(1, days + 1)]


server = ToolServer("weather", tools=[forecast], providers={Weather: Weather})


async def main() -> None:
    """Call the tool as every caller does: through the gate, which validates, decides and records."""
    with TemporaryDirectory() as home:
        async with Crib(Settings(home=Path(home))) as crib:
            crib.register(server)
            result = await crib.call("weather/forecast", {"city": "Ulm", "days": 2}, principal=crib.owner(source="cli"))
            print(result.content[0]["text"])


if __name__ == "__main__":
    asyncio.run(main())
