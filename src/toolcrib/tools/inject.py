"""Dependency injection for tools: providers, the scopes of their values, and the validation of the graph.

The scope is the lifetime of a value: crib ⊃ session ⊃ call. A provider may use values of its own or a wider scope. The
whole graph is validated when a server is registered; `scopes` creates the values.

Must never call a factory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, ReportProgress
from toolcrib.tools.signature import EMPTY, Key, Parameter, definition_error, read_parameters, type_name

ScopeName = Literal["crib", "session", "call"]
_WIDTH: Mapping[ScopeName, int] = {"crib": 3, "session": 2, "call": 1}

Factory: TypeAlias = Callable[..., Any]
"""Creates a value: a function, async function, generator or async generator (closed after its `yield`), or a class."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Creates a value for a scope. The factory may itself have `Annotated[X, Inject]` parameters.

    Async factories run on the event loop; all others run in a worker thread, since they may block. An exception of the
    call is raised at the `yield` of a call-scoped generator, so that it can roll back; the call still fails.
    """

    factory: Factory
    scope: ScopeName = "crib"

    def __post_init__(self) -> None:
        if not callable(self.factory):
            hint = "Give a function that returns the value, as in `lambda: value`."
            raise definition_error(str(self), "it cannot be called.", hint)
        if self.scope not in get_args(ScopeName):
            hint = "Use `crib`, `session` or `call`."
            raise definition_error(str(self), f"there is no scope `{self.scope}`.", hint)

    def __str__(self) -> str:
        return f"Provider `{getattr(self.factory, '__qualname__', type(self.factory).__qualname__)}`"


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a call, injected like any other value: `Annotated[Context, Inject]`."""

    principal: Principal
    call_id: str
    report_progress: ReportProgress | None = None

    @classmethod
    def of(cls, call: CallContext) -> "Context":
        """Return the context of a call."""
        return cls(call.principal, call.call_id, call.report_progress)

    @property
    def session(self) -> str | None:
        """The session of the call, if any."""
        return self.principal.session

    @property
    def agent(self) -> str | None:
        """The calling agent, if any."""
        return self.principal.agent

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller; does nothing if the caller did not request it."""
        if self.report_progress is not None:
            await self.report_progress(done, total, message)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A provider with the needs of its factory: parameter → key."""

    key: Key
    provider: Provider
    needs: Mapping[str, Key]

    def __str__(self) -> str:
        return f"{self.provider} of {type_name(self.key)}"


def as_providers(given: Mapping[Key, Provider | Factory]) -> Mapping[Key, Provider]:
    """Return the providers; a bare factory becomes a provider with the scope of the crib."""
    return MappingProxyType(
        {key: made if isinstance(made, Provider) else Provider(made) for key, made in given.items()}
    )


def injected(parameters: tuple[Parameter, ...]) -> Mapping[str, Key]:
    """Return the injected parameters: name → key."""
    return {parameter.name: parameter.key for parameter in parameters if parameter.injected}


class Graph:
    """All providers of a server, validated: none missing, no cycle, no value that outlives what it needs."""

    def __init__(self, providers: Mapping[Key, Provider]) -> None:
        self._recipes = {key: _read(key, provider) for key, provider in providers.items()}
        for recipe in self._recipes.values():
            self.check(str(recipe), recipe.needs, recipe.provider.scope)
        for key in self._recipes:
            self._check_cycles(key, ())
        self.uses_sessions = any(provider.scope == "session" for provider in providers.values())
        """Whether any value has the scope of a session."""

    def __getitem__(self, key: Key) -> Recipe:
        return self._recipes[key]

    def check(self, subject: str, needs: Mapping[str, Key], scope: ScopeName = "call") -> None:
        """Raise `ConfigError` unless every need is provided and lives at least as long as its user."""
        for parameter, key in needs.items():
            found = "call" if key is Context else self._scope(key)
            if found is None:
                hint = f"Add `providers={{{type_name(key)}: …}}` to the server or module."
                raise definition_error(subject, f"no provider for {type_name(key)}.", hint, parameter)
            if _WIDTH[found] < _WIDTH[scope]:
                message = f"{type_name(key)} lives for a {found}, shorter than the {scope} of its user."
                hint = f'Use `Provider(…, scope="{found}")` for the user, or a wider scope for {type_name(key)}.'
                raise definition_error(subject, message, hint, parameter)

    def _scope(self, key: Key) -> ScopeName | None:
        recipe = self._recipes.get(key)
        return recipe.provider.scope if recipe else None

    def _check_cycles(self, key: Key, users: tuple[tuple[Key, str], ...]) -> None:
        """Raise `ConfigError` for a cycle; `users` is the path so far, each key with the parameter that led on."""
        if key is Context:
            return
        recipe = self._recipes[key]
        way = [user for user, _ in users]
        if key in way:
            circle = " → ".join(type_name(part) for part in (*way[way.index(key) :], key))
            user, parameter = users[-1]
            hint = "Remove one of the dependencies."
            raise definition_error(str(self._recipes[user]), f"it depends on itself: {circle}.", hint, parameter)
        for parameter, needed in recipe.needs.items():
            self._check_cycles(needed, (*users, (key, parameter)))


def _read(key: Key, provider: Provider) -> Recipe:
    subject = f"{provider} of {type_name(key)}"
    if key is Context:
        raise definition_error(subject, "the crib itself provides it.", "Remove this provider.")
    parameters = read_parameters(provider.factory, subject)
    for parameter in parameters:
        if not parameter.injected and parameter.default is EMPTY:
            hint = "Mark it `Annotated[T, Inject]`, or give it a default."
            raise definition_error(subject, "neither an argument nor a provider fills it.", hint, parameter.name)
    return Recipe(key, provider, injected(parameters))
