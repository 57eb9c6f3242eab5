"""Reads the parameters of a function: types, defaults, and which of them are injected.

Used for tools and providers, so that both fail with the same messages, at their definition, with function and
parameter. Must never call the function.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from toolcrib.model.errors import ConfigError

Key: TypeAlias = Any
"""Identifies a provider: the `T` of `Annotated[T, Inject]`."""

EMPTY: Any = inspect.Parameter.empty
"""Means "no default"; None is a valid default."""


class Inject:
    """Marks a parameter that a provider fills: `weather: Annotated[Weather, Inject]`. It is hidden from callers."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `key` is set if it is injected; `annotation` keeps its `Annotated` extras."""

    name: str
    annotation: Any
    default: Any = EMPTY
    key: Key = None

    @property
    def injected(self) -> bool:
        """Whether a provider fills it."""
        return self.key is not None


def definition_error(subject: str, message: str, hint: str, parameter: str | None = None) -> ConfigError:
    """Return the error for an invalid definition."""
    place = f"{subject}, parameter `{parameter}`" if parameter else subject
    return ConfigError("tool.definition", f"{place}: {message}", hint)


def type_name(key: Key) -> str:
    """Return the name of a type as written in code."""
    return key.__qualname__ if isinstance(key, type) else str(key)


def read_parameters(function: Callable[..., Any], subject: str) -> tuple[Parameter, ...]:
    """Return all parameters. Raises `ConfigError` for those that cannot be passed by name."""
    namespace = _namespace(function)
    return tuple(_read(found, namespace, subject) for found in _signature(function, subject))


def read_return(function: Callable[..., Any], subject: str) -> Any:
    """Return the return type of a function; `EMPTY` if it has no annotation."""
    found = inspect.signature(function).return_annotation
    if found is EMPTY:
        return EMPTY
    try:
        return _resolve(found, _namespace(function))
    except Exception as error:  # boundary: annotations are the author's code
        raise _unresolved_error(subject, "return", error) from error


def _signature(function: Callable[..., Any], subject: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # built-in classes have no signature and nothing to inject
        return []
    except NameError as error:  # lazily evaluated annotations are evaluated here
        raise _unresolved_error(subject, None, error) from error


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
    except Exception as error:  # boundary: annotations are the author's code
        raise _unresolved_error(subject, name, error) from error
    return Parameter(name, annotation, found.default, _key(annotation))


def _key(annotation: Any) -> Key:
    if get_origin(annotation) is Annotated:
        key, *extras = get_args(annotation)
        if any(extra is Inject or isinstance(extra, Inject) for extra in extras):
            return key
    return None


def _resolve(annotation: Any, namespace: dict[str, Any]) -> Any:
    if type(annotation.__origin__ if get_origin(annotation) is Annotated else annotation) is type:
        return annotation
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, globalns=namespace, include_extras=True)["it"]


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names available to annotations that are strings."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = typing.cast("functools.partial[Any]", target).func
    if inspect.isclass(target):
        target = target.__init__
    elif not inspect.isroutine(target):
        target = type(target).__call__
    found: Mapping[str, Any] = getattr(inspect.unwrap(target), "__globals__", {})
    return dict(found)


def _unresolved_error(subject: str, parameter: str | None, error: Exception) -> ConfigError:
    hint = "Define or import its type above the function, not only for type checkers."
    return definition_error(subject, f"its type cannot be read ({type(error).__name__}: {error}).", hint, parameter)
