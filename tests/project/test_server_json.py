"""`server.json`, with which this project is published: valid, of this version, and usable by the crib."""

import json
from pathlib import Path
from typing import Any

import jsonschema

from toolcrib.model.version import __version__
from toolcrib.servers.registry.published_server import parse_published
from toolcrib.servers.registry.server_json import option_entry

ROOT = Path(__file__).resolve().parents[2]

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "description": TEXT,
        "value": TEXT,
        "default": TEXT,
        "format": {"enum": ["string", "number", "boolean", "filepath"]},
        "isRequired": {"type": "boolean"},
        "isSecret": {"type": "boolean"},
        "choices": {"type": "array", "items": TEXT},
    },
}
NAMED: dict[str, Any] = {"properties": {"type": {"const": "named"}, "name": TEXT}, "required": ["type", "name"]}
POSITIONAL: dict[str, Any] = {
    "properties": {"type": {"const": "positional"}},
    "required": ["type"],
    "anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}],
}
PACKAGE: dict[str, Any] = {
    "type": "object",
    "required": ["registryType", "identifier", "transport"],
    "properties": {
        "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
        "identifier": TEXT,
        "version": TEXT | {"not": {"const": "latest"}},
        "transport": {"type": "object", "properties": {"type": {"const": "stdio"}}, "required": ["type"]},
        "packageArguments": {"type": "array", "items": {"allOf": [INPUT], "anyOf": [NAMED, POSITIONAL]}},
        "environmentVariables": {"type": "array", "items": INPUT | {"required": ["name"]}},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["$schema", "name", "description", "version", "packages"],
    "properties": {
        "name": {"type": "string", "maxLength": 200, "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
        "title": TEXT | {"maxLength": 100},
        "description": TEXT | {"maxLength": 100},
        "version": TEXT | {"maxLength": 255},
        "packages": {"type": "array", "minItems": 1, "items": PACKAGE},
    },
}
"""The parts of the registry's schema of 2025-12-11 that this file uses."""


def published() -> dict[str, Any]:
    """Return the file."""
    return json.loads((ROOT / "server.json").read_text(encoding="utf-8"))


def test_published_file_matches_the_schema_of_the_registry() -> None:
    document = published()
    jsonschema.validate(document, SCHEMA)
    assert document["$schema"].endswith("/2025-12-11/server.schema.json")
    assert (ROOT / "README.md").read_text(encoding="utf-8").count(f"mcp-name: {document['name']}") == 1


def test_published_versions_match_the_package() -> None:
    document = published()
    assert [document["version"], *(each["version"] for each in document["packages"])] == [__version__] * 2


def test_published_package_starts_the_front_for_apps() -> None:
    server = parse_published(published())
    assert server is not None
    entry = option_entry(server.options[0], {"agent": ["reviewer"]})
    words = [f"toolcrib=={__version__}", "stdio", "--agent", "reviewer"]
    assert (entry["command"], entry["args"]) == ("uvx", words)
