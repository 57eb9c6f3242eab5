"""Tools as Python functions: a signature and a stub from a tool's JSON Schema, for a model to read.

`signature` is one compact line. `stub` is a Python function with types and a docstring. Neither is ever executed.
"""

import keyword
import re
from collections.abc import Iterator
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.tools import Tool

_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_DEEPEST: Final = 4
_MOST_MEMBERS: Final = 20
_LONGEST_DEFAULT: Final = 40
_LONGEST_PURPOSE: Final = 160
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=。)|\n")


def purpose(tool: Tool) -> str:
    """Return the first sentence of a tool's description, or its title or name."""
    text = tool.description.strip() or tool.title or tool.ref.tool
    return _cut(sentences(text)[0].strip(), _LONGEST_PURPOSE)


def sentences(text: str) -> list[str]:
    """Return the first sentence of a text, and the rest if there is one."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)


def signature(tool: Tool) -> str:
    """Return the arguments of a tool in one line, as `(path: str, head: int = 10)`."""
    return f"({', '.join(_parameters(tool))})"


def stub(name: str, tool: Tool) -> str:
    """Return a tool as an asynchronous Python function with a docstring. Types are valid Python."""
    parameters = [each for each in _parameters(tool, is_plain=True) if not each.startswith("'")]
    if len(parameters) < len(tool.argument_names) or tool.input_schema.get("additionalProperties"):
        parameters.append("**others: Any")
    star = "*, " if parameters and not parameters[0].startswith("**") else ""
    head = f"async def {name}({star}{', '.join(parameters)}) -> Any:"
    lines = [tool.description.strip() or purpose(tool)]
    properties: Json = tool.input_schema.get("properties")
    for argument, schema in properties.items() if is_object(properties) else ():
        text: Json = schema.get("description") if is_object(schema) else None
        typed = _type(schema, tool.input_schema, 0)
        if isinstance(text, str) and text.strip():
            lines.append(f"{argument}: {' '.join(text.split())}")
        if "{" in typed:
            lines.append(f"{argument} is {typed}")
    if tool.output_schema is not None:
        lines.append(f"Returns {_type(tool.output_schema, tool.output_schema, 0)}")
    body = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''").replace("\n", "\n    ")
    return f'{head}\n    """{body}"""'


def _parameters(tool: Tool, *, is_plain: bool = False) -> Iterator[str]:
    """Yield the arguments: required ones first, then optional ones with their default. Plain types are Python's."""
    properties: Json = tool.input_schema.get("properties")
    required: Json = tool.input_schema.get("required")
    needed: set[Json] = set(required) if is_array(required) else set()
    members = list(properties.items()) if is_object(properties) else []
    for name, schema in sorted(members, key=lambda member: member[0] not in needed):
        type_ = _type(schema, tool.input_schema, 0)
        typed = f"{_identifier(name)}: {_plain(type_) if is_plain else type_}"
        yield typed if name in needed else f"{typed} = {_default(schema)}"


def _identifier(name: str) -> str:
    """Return the name of an argument; one that Python cannot write is quoted and passed with `**`."""
    return name if name.isidentifier() and not keyword.iskeyword(name) else repr(name)


def _default(schema: Json) -> str:
    if is_object(schema) and "default" in schema:
        text = repr(schema["default"])
        return text if len(text) <= _LONGEST_DEFAULT else "..."
    return "..."


def _type(schema: Json, root: JsonObject, depth: int) -> str:
    """Return the Python type of a schema. References are followed within the document only."""
    if not is_object(schema) or depth > _DEEPEST:
        return "Any"
    if isinstance(schema.get("$ref"), str):
        return _type(_resolve_pointer(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if is_array(schema.get("enum")):
        return f"Literal[{', '.join(repr(choice) for choice in schema['enum'][:_MOST_MEMBERS])}]"
    for key in ("anyOf", "oneOf"):
        if is_array(schema.get(key)):
            return _union(_type(each, root, depth + 1) for each in schema[key][:_MOST_MEMBERS])
    kind: Json = schema.get("type")
    if is_array(kind):
        return _union(_type({**schema, "type": each}, root, depth + 1) for each in kind)
    if kind == "array":
        return f"list[{_type(schema.get('items'), root, depth + 1)}]"
    if kind == "object" or "properties" in schema:
        return _object(schema, root, depth)
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _object(schema: JsonObject, root: JsonObject, depth: int) -> str:
    """Return the members of an object; optional ones are marked with `?`."""
    properties: Json = schema.get("properties")
    if not is_object(properties) or not properties:
        more: Json = schema.get("additionalProperties")
        return f"dict[str, {_type(more, root, depth + 1)}]" if is_object(more) else "dict"
    required: Json = schema.get("required")
    needed: set[Json] = set(required) if is_array(required) else set()
    shown = list(properties.items())[:_MOST_MEMBERS]
    members = [f"{name!r}{'' if name in needed else '?'}: {_type(each, root, depth + 1)}" for name, each in shown]
    if len(properties) > len(shown):
        members.append("...")
    return f"{{{', '.join(members)}}}"


def _plain(type_: str) -> str:
    """Return a type without the members of objects, which Python cannot write in place."""
    plain, depth = "", 0
    for character in type_:
        if character == "{":
            plain += "" if depth else "dict[str, Any]"
            depth += 1
        elif character == "}":
            depth -= 1
        elif not depth:
            plain += character
    return plain


def _union(types: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "Any"


def _resolve_pointer(pointer: str, root: JsonObject) -> Json:
    found: Json = root
    for step in pointer.removeprefix("#").split("/")[1:] if pointer.startswith("#") else ("",):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if is_object(found) else None
    return found


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
