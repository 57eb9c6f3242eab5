"""JSON Schema and validation of a tool's arguments.

Both come from one pydantic type built from the function's parameters, so they cannot disagree. Validation is strict (a
string is never converted to a number) and returns only given arguments: the function's own defaults fill in the rest.
Parameters of plain types only (`plain_types`) need that type for their first call, not for their schema.

Must never repeat what a caller sent, except for field names: it may be secret.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaMode
from pydantic_core import ErrorDetails, ValidationError, to_jsonable_python
from typing_extensions import TypedDict

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.tools.plain_types import PlainSchema, PlainType, plain_type
from toolcrib.tools.signature import EMPTY, Parameter, definition_error

logger = logging.getLogger(__name__)

Check = Callable[[bytes], dict[str, Any]]
"""Converts the JSON of arguments to keyword arguments. Raises `InvalidRequest` (`tool.arguments_invalid`)."""

_LISTED = 10
"""Maximum number of invalid fields in one message."""
_LONGEST_NAME = 80
_LONGEST_REASON = 200

_REASONS = {
    "missing": "is required",
    "extra_forbidden": "is not a parameter",
    "unexpected_keyword_argument": "is not a parameter",
}


@dataclass(frozen=True, slots=True)
class ArgumentSchema:
    """The schema of a tool's arguments, and their validation."""

    schema: JsonObject
    check: Check


def read_arguments(parameters: Sequence[Parameter], docs: Mapping[str, str], subject: str) -> ArgumentSchema:
    """Return schema and validation for the parameters that are not injected."""
    plain = [(each, found) for each in parameters if (found := _plain_type(each)) is not None]
    if len(plain) == len(parameters):
        schema = _plain_schema(plain, docs)
        return ArgumentSchema(schema, _late_check(parameters, docs, subject))
    fields = _fields(parameters, docs, subject)
    adapter, schema = _adapter(fields, subject)
    for parameter in parameters:
        name = _wire_name(parameter)
        if parameter.default is not EMPTY and name in schema["properties"]:
            _add_default(schema["properties"][name], parameter.default, partial(_takes, adapter, name))
    return ArgumentSchema(schema, _check(adapter, subject))


def _plain_type(parameter: Parameter) -> PlainType | None:
    return None if isinstance(parameter.default, FieldInfo) else plain_type(parameter.annotation)


def _plain_schema(parameters: Iterable[tuple[Parameter, PlainType]], docs: Mapping[str, str]) -> JsonObject:
    """Return the schema that pydantic would generate, from those of the types."""
    properties: JsonObject = {}
    required: list[str] = []
    for parameter, plain in parameters:
        text = plain.text or docs.get(parameter.name)
        described = {**plain.schema, "description": text} if text else plain.schema
        properties[parameter.name] = found = dict(sorted(described.items()))
        if parameter.default is EMPTY:
            required.append(parameter.name)
        else:
            _add_default(found, parameter.default, plain.takes)
    listed: JsonObject = {"required": required} if required else {}
    return {"additionalProperties": False, "properties": properties, **listed, "type": "object"}


def object_schema(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> JsonObject:
    """Return the JSON Schema of an object type, inlined at the root even if the type refers to itself."""
    schema = adapter.json_schema(mode=mode, schema_generator=PlainSchema)
    definitions: dict[str, JsonObject] = schema.get("$defs", {})
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target in definitions:
        schema = {**definitions[target], "$defs": definitions}
    schema.pop("title", None)
    return schema


def describe(error: ValidationError) -> str:
    """Return one clause per invalid field: its path and the reason, without its value."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    clauses = [f"{_path(detail)}: {_reason(detail)}" for detail in details[:_LISTED]]
    if len(details) > _LISTED:
        clauses.append(f"and {len(details) - _LISTED} more")
    return "; ".join(clauses)


def _field(parameter: Parameter, doc: str | None, subject: str) -> Any:
    """Return the parameter as a field: type, description, required or not."""
    annotation = parameter.annotation
    if annotation is EMPTY:
        raise definition_error(subject, "it has no type.", "Annotate it, as in `days: int`.", parameter.name)
    extras = _extras(annotation)
    stated = [extra for extra in extras if isinstance(extra, FieldInfo)]
    if isinstance(parameter.default, FieldInfo) or not all(info.is_required() for info in stated):
        hint = "Write `days: Annotated[int, Field(ge=1)] = 3`, so that a plain call has the default too."
        raise definition_error(subject, "its default is set in `Field`.", hint, parameter.name)
    text = next((extra for extra in extras if isinstance(extra, str)), None)
    if text is None and not any(info.description for info in stated):
        text = doc
    if text:
        annotation = Annotated[annotation, Field(description=text)]
    return Required[annotation] if parameter.default is EMPTY else NotRequired[annotation]


def _extras(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _adapter(fields: Mapping[str, Any], subject: str) -> tuple[TypeAdapter[Any], JsonObject]:
    try:
        return _build(fields)
    except Exception as error:  # boundary: pydantic runs hooks of the author's types
        for name, annotation in fields.items():
            reason = _refusal({name: annotation})
            if reason is not None:
                hint = "Use a type that JSON can represent; mark injected parameters as `Annotated[T, Inject]`."
                raise definition_error(subject, f"its type has no JSON Schema ({reason})", hint, name) from error
        raise definition_error(subject, f"no JSON Schema can be made ({error}).", "Use simpler types.") from error


def _refusal(fields: Mapping[str, Any]) -> str | None:
    try:
        _build(fields)
    except Exception as error:  # noqa: BLE001 boundary: pydantic runs hooks of the author's types
        return next(iter(str(error).splitlines()), type(error).__name__)
    return None


def _build(fields: Mapping[str, Any]) -> tuple[TypeAdapter[Any], JsonObject]:
    make = cast("Callable[[str, Mapping[str, Any]], Any]", TypedDict)  # type checkers accept literal fields only
    arguments = make("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    adapter: TypeAdapter[Any] = TypeAdapter(arguments)
    schema = object_schema(adapter, "validation")
    schema.setdefault("properties", {})
    return adapter, schema


def _fields(parameters: Sequence[Parameter], docs: Mapping[str, str], subject: str) -> dict[str, Any]:
    return {parameter.name: _field(parameter, docs.get(parameter.name), subject) for parameter in parameters}


def _late_check(parameters: Sequence[Parameter], docs: Mapping[str, str], subject: str) -> Check:
    """Return a check that is built for the first call: a crib may have thousands of tools."""
    built: list[Check] = []

    def check(encoded: bytes) -> dict[str, Any]:
        if not built:
            built.append(_check(_build(_fields(parameters, docs, subject))[0], subject))
        return built[0](encoded)

    return check


def _check(adapter: TypeAdapter[Any], subject: str) -> Check:
    validate = adapter.validator.validate_json

    def check(encoded: bytes) -> dict[str, Any]:
        try:
            return validate(encoded, strict=True)
        except ValidationError as error:
            raise InvalidRequest("tool.arguments_invalid", f"Invalid arguments: {describe(error)}.") from None
        except Exception as error:  # boundary: validators of the author's types run here
            logger.exception("%s: a validator failed", subject)
            message = f"The arguments could not be checked: {type(error).__name__} in a validator."
            raise InvalidRequest("tool.arguments_invalid", message) from error

    return check


def _add_default(schema: JsonObject, default: Any, takes: Callable[[bytes], bool]) -> None:
    """Add a default to the schema of a parameter if it is JSON and valid for it (`x: str = None` is not)."""
    try:
        plain = to_jsonable_python(default)
        encoded = dumps(plain)
        value = loads(encoded)
    except (TypeError, ValueError):  # a default that is not JSON is left to the function
        return
    if value == plain and takes(encoded):
        schema["default"] = value


def _takes(adapter: TypeAdapter[Any], name: str, encoded: bytes) -> bool:
    try:
        adapter.validator.validate_json(b"{%b:%b}" % (dumps(name), encoded), strict=True)
    except ValidationError as error:  # other parameters are missing here, so only errors of this one count
        return all(detail["loc"][:1] != (name,) for detail in error.errors(include_url=False, include_input=False))
    except Exception:  # noqa: BLE001 boundary: validators of the author's types run here
        return False
    return True


def _wire_name(parameter: Parameter) -> str:
    aliases = (extra.alias for extra in _extras(parameter.annotation) if isinstance(extra, FieldInfo))
    return next((alias for alias in aliases if alias), parameter.name)


def _path(detail: ErrorDetails) -> str:
    path = ".".join(str(part) for part in detail["loc"]) or "arguments"
    return _legible(path, _LONGEST_NAME)


def _reason(detail: ErrorDetails) -> str:
    return _legible(_REASONS.get(detail["type"], detail["msg"]), _LONGEST_REASON).rstrip(".")


def _legible(text: str, longest: int) -> str:
    """Return a short, single-line text: names and messages may contain anything a caller sent."""
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:longest])
    return shown if len(text) <= longest else shown + "…"
