"""The definition of each crew tool equals its stored schema, so every change is deliberate.

`python tests/unit/builtin/crew/test_schemas.py` writes the stored schemas.
"""

from pathlib import Path

import orjson
import pytest

from toolcrib.builtin.crew.server import SERVER, crew_server
from toolcrib.model.json import JsonObject

SCHEMAS = Path(__file__).with_name("schemas")
DEFINITIONS = crew_server({}).definitions


def full_definition(name: str) -> JsonObject:
    """Return everything that clients and the policy receive about a tool."""
    found = DEFINITIONS[name].tool(SERVER, "builtin")
    more: JsonObject = {"marks": found.marks.to_json(), "requires": list(found.requires), "timeout": found.timeout}
    return {**found.definition, **more}


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_definition_equals_the_stored_schema(name: str) -> None:
    stored = SCHEMAS / f"{name}.json"
    assert orjson.loads(stored.read_bytes()) == orjson.loads(orjson.dumps(full_definition(name)))


def test_each_stored_schema_belongs_to_a_tool() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(DEFINITIONS)


def write() -> None:
    """Write all schemas."""
    SCHEMAS.mkdir(exist_ok=True)
    for path in SCHEMAS.glob("*.json"):
        path.unlink()
    for name in DEFINITIONS:
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        (SCHEMAS / f"{name}.json").write_bytes(orjson.dumps(full_definition(name), option=options))


if __name__ == "__main__":
    write()
