"""`@tool` and `ToolServer`: what they read from a function, and what they reject."""

import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from toolcrib.model.errors import ConfigError
from toolcrib.model.tools import Marks, ToolRef
from toolcrib.tools import Context, Inject, PythonSource, ToolServer, tool
from toolcrib.tools.define import definition_of


class Weather:
    def look_up(self, city: str) -> str:
        return f"sunny in {city}"


@tool
def bare(city: str) -> str:
    """Say it."""
    return city


@tool(
    name="weather.forecast",
    title="Forecast",
    read_only=True,
    privileged=True,
    scheduler_blocked=True,
    open_world=True,
    always_load=True,
    requires=["net", "key"],
    timeout=2.5,
)
async def full(city: str, *, weather: Annotated[Weather, Inject]) -> str:
    """Forecast for a city.

    Args:
        city: Its name.
        weather: Filled in.
    """
    return weather.look_up(city)


def refusal(function: Callable[..., Any], **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        tool(**options)(function)
    assert caught.value.code == "tool.definition"
    assert caught.value.hint
    return caught.value


def test_decorated_function_is_the_function_itself() -> None:
    def plain(city: str) -> str:
        return city

    assert tool(plain) is plain
    assert tool(read_only=True)(plain) is plain
    assert bare("Ulm") == "Ulm"


@pytest.mark.anyio
async def test_decorated_function_can_be_called_with_its_own_values() -> None:
    assert await full("Ulm", weather=Weather()) == "sunny in Ulm"


def test_bare_tool_has_the_functions_name_and_no_marks() -> None:
    server = ToolServer("s", tools=[bare])
    (only,) = PythonSource(server).tools()
    assert only.ref == ToolRef("s", "bare")
    assert only.description == "Say it."
    assert only.kind == "plugin"
    assert only.marks == Marks()
    assert (only.annotations, only.title, only.timeout, only.output_schema) == (None, None, None, None)
    assert only.definition == {"description": "Say it.", "inputSchema": only.input_schema}


def test_all_options_reach_the_tool() -> None:
    server = ToolServer("s", tools=[full], providers={Weather: Weather}, kind="builtin")
    (only,) = PythonSource(server, services={"net", "key"}).tools()
    assert only.ref == ToolRef("s", "weather.forecast")
    assert only.title == "Forecast"
    assert only.kind == "builtin"
    assert only.marks == Marks(
        read_only=True, privileged=True, scheduler_blocked=True, open_world=True, always_load=True
    )
    assert only.requires == ("net", "key")
    assert only.timeout == 2.5
    assert only.annotations == {"readOnlyHint": True, "openWorldHint": True}
    assert only.definition["_meta"] == {"anthropic/alwaysLoad": True}
    assert only.description == "Forecast for a city."


def test_injected_parameter_is_absent_from_the_schema() -> None:
    definition = definition_of(full)
    assert definition is not None
    assert list(definition.input_schema["properties"]) == ["city"]
    assert definition.input_schema["properties"]["city"]["description"] == "Its name."


def test_one_required_service_may_be_given_as_text() -> None:
    @tool(requires="net")
    def act() -> None: ...

    definition = definition_of(act)
    assert definition is not None
    assert definition.requires == ("net",)


def test_function_with_a_wrapping_decorator_keeps_its_signature() -> None:
    def twice(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return 2 * function(*args, **kwargs)

        return wrapper

    @tool
    @twice
    def count(n: "int") -> int:
        return n

    definition = definition_of(count)
    assert definition is not None
    assert definition.input_schema["properties"] == {"n": {"type": "integer"}}
    assert definition.function(n=2) == 4


def test_decorator_above_tool_is_rejected_because_calls_would_skip_it() -> None:
    @functools.wraps(bare)
    def above(city: str) -> str:
        return bare(city)

    with pytest.raises(ConfigError, match="another decorator"):
        ToolServer("s", tools=[above])


def test_anything_but_a_function_is_rejected() -> None:
    class Thing:
        def __call__(self) -> None: ...

        def method(self) -> None: ...

    for odd in (Thing, Thing(), Thing().method, functools.partial(bare, "x"), len):
        assert "functions only" in refusal(odd).message


def test_generator_function_is_rejected() -> None:
    def stream() -> Iterator[int]:
        yield 1

    assert "`test_generator_function_is_rejected.<locals>.stream`" in refusal(stream).message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "größe", "x" * 129, "a\n"])
def test_name_with_characters_outside_the_protocol_is_rejected(name: str) -> None:
    def act() -> None: ...

    assert "name" in refusal(act, name=name).message


def test_contradictory_marks_are_rejected() -> None:
    def act() -> None: ...

    assert "both" in refusal(act, read_only=True, destructive=True).message


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_invalid_timeout_is_rejected(timeout: float) -> None:
    def act() -> None: ...

    assert "time-out" in refusal(act, timeout=timeout).message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 101, "a\n"])
def test_server_name_with_unsafe_characters_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="name of a server"):
        ToolServer(name, tools=[bare])


def test_two_tools_with_one_name_are_rejected() -> None:
    @tool(name="bare")
    def other() -> None: ...

    with pytest.raises(ConfigError, match="already has a tool `bare`"):
        ToolServer("s", tools=[bare, other])


def test_function_without_the_decorator_is_rejected() -> None:
    def plain() -> None: ...

    with pytest.raises(ConfigError, match="is not a tool"):
        ToolServer("s", tools=[plain])


def test_context_can_be_injected_without_a_provider() -> None:
    @tool
    async def act(*, context: Annotated[Context, Inject()]) -> None: ...

    (only,) = PythonSource(ToolServer("s", tools=[act])).tools()
    assert only.input_schema["properties"] == {}
