"""Converts return values of functions to results of calls.

Text stays text. Everything else becomes JSON: an object becomes structured content and one text block, any other value
`{"result": value}` with the value as text. The result is plain JSON, independent of the tool's objects.

Must never return what the protocol cannot carry: NaN, cycles, other objects, or more than the limit.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError, ValidationError, to_jsonable_python
from typing_extensions import is_typeddict

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, dumps, loads
from toolcrib.model.tools import CallResult
from toolcrib.tools.schema import describe, object_schema
from toolcrib.tools.signature import EMPTY, definition_error, type_name

LARGEST = 16 * 1024 * 1024
"""Maximum size of a result as JSON, in bytes."""

ToResult = Callable[[object], CallResult]
"""Converts a return value to a result. Raises `Unavailable` (`tool.result_invalid`) if that is not possible."""


@dataclass(frozen=True, slots=True)
class Results:
    """How return values become results; `schema` is set if the function declares an object type."""

    schema: JsonObject | None
    convert: ToResult


def read_results(annotation: Any, subject: str) -> Results:
    """Return the conversion for a function's return annotation."""
    declared = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if declared is EMPTY or not _is_record(declared):
        return Results(None, to_result)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = object_schema(adapter, "serialization")
    except Exception as error:  # boundary: pydantic runs hooks of the author's types
        hint = "Return a type that JSON can represent, or annotate `dict`."
        raise definition_error(subject, f"its return type has no JSON Schema ({error}).", hint) from error
    if schema.get("type") != "object":
        return Results(None, to_result)
    return Results(schema, _conform(adapter, type_name(declared)))


def to_result(value: object) -> CallResult:
    """Convert any value to a result."""
    if type(value) is dict:  # by far the most common case
        return _structured_result(cast("object", value))
    if isinstance(value, str) and not isinstance(value, Enum):
        return _text(value)
    if value is None:
        return CallResult()
    if isinstance(value, CallResult):
        return _convert_parts(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise _invalid("bytes, which JSON cannot represent", "Return text, or encode the bytes, for example as base64.")
    if isinstance(value, Iterator):  # it may be infinite
        raise _invalid("an iterator", "Return a list.")
    return _structured_result(value)


def _convert_parts(result: CallResult) -> CallResult:
    """Return a result that the tool created, with its parts converted to JSON if needed."""
    wire = result.to_json()
    plain, _ = _plain(wire)
    if plain == wire:
        return result
    extra = {name: plain[name] for name in result.extra}
    structured = plain.get("structuredContent")
    return replace(result, content=plain["content"], structured_content=structured, extra=extra)


def _structured_result(value: object) -> CallResult:
    plain, encoded = _plain(value)
    structured = plain if encoded.startswith(b"{") else {"result": plain}
    text = plain if isinstance(plain, str) else encoded.decode()
    return CallResult(({"type": "text", "text": text},), structured_content=structured, has_structured=True)


def _is_record(declared: Any) -> bool:
    origin: Any = get_origin(declared) or declared
    return is_typeddict(origin) or is_dataclass(origin) or _is_model(origin)


def _is_model(origin: Any) -> bool:
    return inspect.isclass(origin) and issubclass(origin, BaseModel)


def _conform(adapter: TypeAdapter[Any], name: str) -> ToResult:
    """Return a conversion to the declared type, since clients validate results against the output schema.

    Fields that the type does not declare are dropped.
    """
    validate, serialize = adapter.validator.validate_python, adapter.serializer.to_python

    def convert(value: object) -> CallResult:
        if isinstance(value, CallResult):
            return to_result(value)
        try:
            fitting = serialize(validate(value), mode="json", by_alias=True, warnings="error")
        except ValidationError as error:
            raise _invalid(f"a value that is not a {name}: {describe(error)}", f"Return a {name}.") from error
        except PydanticSerializationError as error:
            raise _invalid(f"a {name} with wrong fields", f"Give the fields of {name} their types.") from error
        return to_result(fitting)

    return convert


def _text(text: str) -> CallResult:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise _invalid("text with lone surrogates", "Decode the text with `errors='replace'`.") from error
    _check_size(size)
    return CallResult.text(text)


def _plain(value: object) -> tuple[Json, bytes]:
    """Return the value as plain JSON, and its bytes.

    If the decoded bytes equal the value, it is plain already. Otherwise it is converted once; any difference after that
    is a float that JSON writes as null.
    """
    try:
        encoded = dumps(value)
    except TypeError:  # not plain JSON: convert it below
        pass
    else:
        _check_size(len(encoded))
        plain = loads(encoded)
        if plain == value:
            return plain, encoded
    try:
        value = to_jsonable_python(value)
        encoded = dumps(value)
    except (TypeError, ValueError) as error:
        raise _invalid(
            f"a value that is not JSON ({error})", "Return text, numbers, lists, dicts or pydantic models."
        ) from error
    _check_size(len(encoded))
    plain = loads(encoded)
    if plain != value:
        raise _invalid("a number that is not finite (NaN or Infinity)", "Return None or text in its place.")
    return plain, encoded


def _check_size(size: int) -> None:
    if size > LARGEST:
        limit = LARGEST // (1024 * 1024)
        raise _invalid(f"{size:,} bytes, more than {limit} MiB", "Return less: a page, a summary or a file's path.")


def _invalid(what: str, hint: str) -> Unavailable:
    return Unavailable("tool.result_invalid", f"The tool returned {what}.", hint)
