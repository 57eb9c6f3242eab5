"""The graph of providers: conflicts are rejected at registration with the names of the parts."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from toolcrib.model.errors import ConfigError
from toolcrib.model.principals import Principal
from toolcrib.tools import Context, Inject, Provider, PythonSource, ToolServer, tool


class Database: ...


class Clock: ...


@dataclass
class Service:
    database: Annotated[Database, Inject]
    clock: Annotated[Clock, Inject]


@tool
def report(*, service: Annotated[Service, Inject]) -> None: ...


@tool(requires="github")
def star(*, token: Annotated[int, Inject]) -> None: ...


def refusal(providers: Mapping[Any, Provider | Callable[..., Any]]) -> str:
    with pytest.raises(ConfigError) as caught:
        PythonSource(ToolServer("s", tools=[report], providers=providers))
    assert caught.value.code == "tool.definition"
    assert caught.value.hint
    return caught.value.message


def test_missing_provider_of_a_tool_names_function_and_parameter() -> None:
    assert refusal({}) == "Tool `report`, parameter `service`: no provider for Service."


def test_missing_provider_of_a_provider_names_factory_and_parameter() -> None:
    message = refusal({Service: Service, Clock: Clock})
    assert message == "Provider `Service` of Service, parameter `database`: no provider for Database."


def test_cycle_is_rejected_with_its_path() -> None:
    def open_database(clock: Annotated[Clock, Inject]) -> Database:
        return Database()

    def open_clock(database: Annotated[Database, Inject]) -> Clock:
        return Clock()

    message = refusal({Service: Service, Database: open_database, Clock: open_clock})
    assert "Database → Clock → Database" in message
    assert "open_clock" in message
    assert "parameter `database`" in message


def test_provider_that_needs_itself_is_rejected() -> None:
    def again(clock: Annotated[Clock, Inject]) -> Clock:
        return clock

    assert "Clock → Clock" in refusal({Service: Service, Database: Database, Clock: again})


@pytest.mark.parametrize(("wider", "narrower"), [("crib", "session"), ("crib", "call"), ("session", "call")])
def test_provider_may_not_outlive_what_it_uses(wider: Any, narrower: Any) -> None:
    providers = {
        Service: Provider(Service, scope=wider),
        Database: Database,
        Clock: Provider(Clock, scope=narrower),
    }
    message = refusal(providers)
    assert "Provider `Service` of Service, parameter `clock`" in message
    assert f"lives for a {narrower}" in message


def test_context_has_the_scope_of_a_call() -> None:
    def make(context: Annotated[Context, Inject]) -> Service:
        raise AssertionError(context)

    assert "Context lives for a call" in refusal({Service: make})
    server = ToolServer("s", tools=[report], providers={Service: Provider(make, scope="call")})
    assert len(PythonSource(server).tools()) == 1


def test_provider_for_the_context_is_rejected() -> None:
    assert "the crib itself provides it" in refusal({Context: lambda: None, Service: lambda: None})


def test_parameter_without_a_provider_is_rejected() -> None:
    def make(path: str, size: int = 3) -> Service:
        raise AssertionError(path, size)

    assert "a provider fills it" in refusal({Service: make})


def test_provider_that_is_not_callable_is_rejected() -> None:
    ready: Any = Service(Database(), Clock())
    with pytest.raises(ConfigError, match="cannot be called"):
        ToolServer("s", tools=[report], providers={Service: ready})


def test_unknown_scope_is_rejected() -> None:
    scope: Any = "host"
    with pytest.raises(ConfigError, match="no scope `host`"):
        Provider(Service, scope=scope)


def test_servers_own_providers_override_shared_ones() -> None:
    def unfit(nothing: str) -> Service:
        raise AssertionError(nothing)

    shared = {Database: Provider(Database), Clock: Provider(Clock), Service: Provider(unfit)}
    server = ToolServer("s", tools=[report], providers={Service: Service})
    assert len(PythonSource(server, shared).tools()) == 1


def test_tool_without_its_service_is_known_but_not_offered_or_checked() -> None:
    source = PythonSource(ToolServer("s", tools=[report, star], providers={Service: lambda: None}))
    assert [tool.ref.tool for tool in source.tools()] == ["report"]
    assert source.unmet == {"star": ("github",)}
    with pytest.raises(ConfigError, match="no provider for int"):
        PythonSource(source.server, services=["github"])


def test_building_a_source_calls_no_factory() -> None:
    def never() -> Service:
        raise AssertionError

    async def never_async() -> AsyncIterator[Database]:
        raise AssertionError
        yield Database()

    PythonSource(ToolServer("s", tools=[report], providers={Service: never, Database: never_async}))


def test_context_can_be_constructed_in_a_test() -> None:
    context = Context(Principal("session", "a", "agent", agent="reviewer", session="s1"), "call-1")
    assert (context.session, context.agent, context.call_id) == ("s1", "reviewer", "call-1")
