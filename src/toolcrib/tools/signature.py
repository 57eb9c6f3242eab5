"""Reads the parameters of a function: their types, their defaults, and which of them are injected.

Tools and providers are both read here, so that both fail in the same words, at their definition, naming function and
parameter. Above: `inject` and `schema`. It must never call what it reads.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from toolcrib.errors import ConfigError

Key: TypeAlias = Any
"""What a provider is found by: the `T` of `Annotated[T, Inject]`."""

EMPTY: Any = inspect.Parameter.empty
"""Stands for "no default"; None is a default of its own."""


class Inject:
    """Marks a parameter that a provider fills: `weather: Annotated[Weather, Inject]`. Callers never see it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `key` is set on injected ones; `annotation` keeps its `Annotated` extras."""

    name: str
    annotation: Any
    default: Any = EMPTY
    key: Key = None

    @property
    def injected(self) -> bool:
        """Whether a provider fills it."""
        return self.key is not None


def definition_error(subject: str, message: str, hint: str, parameter: str | None = None) -> ConfigError:
    """The one form of a complaint about a definition."""
    place = f"{subject}, parameter `{parameter}`" if parameter else subject
    return ConfigError("tool.definition", f"{place}: {message}", hint)


def type_name(key: Key) -> str:
    """A type as a person would write it."""
    return key.__qualname__ if isinstance(key, type) else str(key)


def read_parameters(function: Callable[..., Any], subject: str) -> tuple[Parameter, ...]:
    """All parameters, each of which can be passed by its name."""
    return tuple(_read(found, _namespace(function), subject) for found in _signature(function, subject))


def read_return(function: Callable[..., Any], subject: str) -> Any:
    """The type a function says it returns; `EMPTY` if it says nothing."""
    found = inspect.signature(function).return_annotation
    if found is EMPTY:
        return EMPTY
    try:
        return _resolve(found, _namespace(function))
    except Exception as error:  # boundary: annotations are code of the author's
        raise _unresolved(subject, "return", error) from error


def _signature(function: Callable[..., Any], subject: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # built-in classes have no signature to read, and nothing to inject
        return []
    except NameError as error:  # where annotations are evaluated late, reading is what evaluates them
        raise _unresolved(subject, None, error) from error


def _read(found: inspect.Parameter, namespace: dict[str, Any], subject: str) -> Parameter:
    name = found.name
    if found.kind in (found.VAR_POSITIONAL, found.VAR_KEYWORD):
        stars = "*" if found.kind is found.VAR_POSITIONAL else "**"
        hint = "Name each parameter, or take one `list` or `dict`."
        raise definition_error(subject, f"`{stars}{name}` has no schema.", hint, name)
    if found.kind is found.POSITIONAL_ONLY:
        raise definition_error(subject, "it is positional-only.", "Remove the `/`: arguments come by name.", name)
    if found.annotation is EMPTY:
        return Parameter(name, EMPTY, found.default)
    try:
        annotation = _resolve(found.annotation, namespace)
    except Exception as error:  # boundary: annotations are code of the author's
        raise _unresolved(subject, name, error) from error
    return Parameter(name, annotation, found.default, _key(annotation))


def _key(annotation: Any) -> Key:
    if get_origin(annotation) is Annotated:
        key, *extras = get_args(annotation)
        if any(extra is Inject or isinstance(extra, Inject) for extra in extras):
            return key
    return None


def _resolve(annotation: Any, namespace: dict[str, Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, globalns=namespace, include_extras=True)["it"]


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """The names an annotation written as a string may use."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = typing.cast("functools.partial[Any]", target).func
    if inspect.isclass(target):
        target = target.__init__
    elif not inspect.isroutine(target):
        target = type(target).__call__
    found: Mapping[str, Any] = getattr(inspect.unwrap(target), "__globals__", {})
    return dict(found)


def _unresolved(subject: str, parameter: str | None, error: Exception) -> ConfigError:
    hint = "Define or import its type above the function, not only for type checkers."
    return definition_error(subject, f"its type cannot be read ({type(error).__name__}: {error}).", hint, parameter)
