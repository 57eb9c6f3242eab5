"""The definition of every crew tool is what it was: a change shows here first, and is made on purpose.

`python tests/unit/crew/test_schemas.py` writes the files anew.
"""

from pathlib import Path

import orjson
import pytest

from toolcrib.builtin.crew.server import SERVER, crew_server
from toolcrib.model.json import JsonObject

SCHEMAS = Path(__file__).with_name("schemas")
DEFINITIONS = crew_server({}).definitions


def described(name: str) -> JsonObject:
    """All that a client, and policy, is told of a tool."""
    found = DEFINITIONS[name].tool(SERVER, "builtin")
    more: JsonObject = {"marks": found.marks.to_json(), "requires": list(found.requires), "timeout": found.timeout}
    return {**found.definition, **more}


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_a_tool_is_defined_as_it_was(name: str) -> None:
    written = SCHEMAS / f"{name}.json"
    assert orjson.loads(written.read_bytes()) == orjson.loads(orjson.dumps(described(name)))


def test_there_is_no_schema_of_a_tool_that_is_gone() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(DEFINITIONS)


def write() -> None:
    """Write all schemas."""
    SCHEMAS.mkdir(exist_ok=True)
    for path in SCHEMAS.glob("*.json"):
        path.unlink()
    for name in DEFINITIONS:
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        (SCHEMAS / f"{name}.json").write_bytes(orjson.dumps(described(name), option=options))


if __name__ == "__main__":
    write()
