"""JSON Schemas of plain types: texts, numbers, switches, choices, and lists, objects and unions of them.

Most parameters have one of a few such types, so each is built once, by pydantic.

Must never share anything between types that are equal but different, such as `int | str` and `str | int`.
"""

from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from toolcrib.model.json import JsonObject

_LEAVES: Final = (str, int, float, bool, NoneType, None, list, dict, Any)
_CHOICES: Final = (str, int, bool, NoneType)


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic derives from field names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # the schema is correct anyway

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class PlainType(NamedTuple):
    """A plain type: its schema, its validation, and the description that its annotation has."""

    schema: JsonObject
    adapter: TypeAdapter[Any]
    text: str | None = None

    def takes(self, encoded: bytes) -> bool:
        """Return whether a JSON value is valid."""
        try:
            self.adapter.validator.validate_json(encoded, strict=True)
        except ValidationError:
            return False
        return True


_known: dict[str, PlainType] = {}


def plain_type(annotation: Any) -> PlainType | None:
    """Return a plain type, or None for any other annotation. A text in `Annotated` is its description."""
    text: str | None = None
    if get_origin(annotation) is Annotated:
        annotation, text, *more = get_args(annotation)
        if more or not isinstance(text, str):
            return None
    if not _is_plain(annotation):
        return None
    written = repr(annotation)
    if (known := _known.get(written)) is None:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        known = _known[written] = PlainType(adapter.json_schema(schema_generator=PlainSchema), adapter)
    return known._replace(text=text)


def _is_plain(annotation: Any) -> bool:
    if any(annotation is leaf for leaf in _LEAVES):
        return True
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return all(type(choice) in _CHOICES for choice in parts)
    if origin is dict and parts[0] is not str:
        return False
    return origin in (list, dict, Union, UnionType) and all(map(_is_plain, parts))
