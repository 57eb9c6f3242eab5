"""Servers in the forms that the registry documents: how each can be run, what it asks of the user, what is started.

Each document is a short form of an example in the registry's description of `server.json`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from toolcrib.model.json import JsonObject
from toolcrib.servers.registry.server_json import install_options, option_entry


class Example(NamedTuple):
    """A document, the ids of its options, the required inputs of the first, the user's values, and the definition."""

    document: JsonObject
    options: Sequence[str]
    required: Sequence[str]
    values: Mapping[str, Sequence[str]]
    entry: JsonObject


def published(kind: str, identifier: str, version: str = "", **more: Any) -> JsonObject:
    """A package with its transport."""
    made: JsonObject = {"registryType": kind, "identifier": identifier, "transport": {"type": "stdio"}, **more}
    return {**made, "version": version} if version else made


KEY = {"name": "BRAVE_API_KEY", "isRequired": True, "isSecret": True}
MOUNT: JsonObject = {
    "type": "named",
    "name": "--mount",
    "value": "type=bind,src={source_path},dst={target_path}",
    "isRequired": True,
    "isRepeated": True,
    "variables": {
        "source_path": {"format": "filepath", "isRequired": True},
        "target_path": {"isRequired": True, "default": "/project"},
    },
}
DATABASE: JsonObject = {
    "runtimeArguments": [
        {"type": "named", "name": "--network", "value": "host"},
        {
            "type": "named",
            "name": "-e",
            "value": "DB_TYPE={db_type}",
            "isRepeated": True,
            "variables": {"db_type": {"choices": ["postgres", "mysql"], "isRequired": True}},
        },
    ],
    "packageArguments": [
        {"type": "named", "name": "--host", "default": "localhost", "isRequired": True},
        {"type": "named", "name": "--port", "format": "number"},
        {"type": "positional", "valueHint": "database_name", "isRequired": True},
    ],
    "environmentVariables": [
        {"name": "DB_PASSWORD", "isRequired": True, "isSecret": True},
        {"name": "SSL_MODE", "default": "prefer", "choices": ["disable", "prefer", "require"]},
    ],
}
DIRECTORY: JsonObject = {
    "type": "positional",
    "valueHint": "target_dir",
    "default": "/srv/files",
    "isRequired": True,
    "isRepeated": True,
}
HEADERS = [
    {"name": "X-API-Key", "isRequired": True, "isSecret": True},
    {"name": "X-Region", "default": "us-east-1", "choices": ["us-east-1", "eu-west-1"]},
]
REMOTES = [
    {"type": "streamable-http", "url": "https://mcp.example.com/http", "headers": HEADERS},
    {"type": "sse", "url": "https://mcp.example.com/sse"},
]
EXAMPLES: dict[str, Example] = {
    "npm package with a secret": Example(
        {"packages": [published("npm", "@a/search", "1.0.2", environmentVariables=[KEY])]},
        ["npm"],
        ["BRAVE_API_KEY"],
        {},
        {"command": "npx", "args": ["-y", "@a/search@1.0.2"], "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}},
    ),
    "constant arguments": Example(
        {
            "packages": [
                published(
                    "nuget",
                    "A.Sample",
                    "0.4.0-beta",
                    packageArguments=[{"type": "positional", "value": "mcp"}, {"type": "positional", "value": "start"}],
                )
            ]
        },
        ["nuget"],
        [],
        {},
        {"command": "dnx", "args": ["A.Sample@0.4.0-beta", "--yes", "--", "mcp", "start"]},
    ),
    "directories given twice": Example(
        {
            "packages": [
                published("npm", "@a/files", "1.0.2", packageArguments=[DIRECTORY]),
                published("oci", "docker.io/a/files:1.0.2", runtimeArguments=[MOUNT]),
            ]
        },
        ["npm", "oci"],
        [],
        {"target_dir": ["/one", "/two"]},
        {"command": "npx", "args": ["-y", "@a/files@1.0.2", "/one", "/two"]},
    ),
    "image with a mount": Example(
        {"packages": [published("oci", "docker.io/a/files:1.0.2", runtimeArguments=[MOUNT])]},
        ["oci"],
        ["source_path"],
        {"source_path": ["/one"]},
        {
            "command": "docker",
            "args": ["run", "-i", "--rm", "--mount", "type=bind,src=/one,dst=/project", "docker.io/a/files:1.0.2"],
        },
    ),
    "python package with a default": Example(
        {
            "packages": [
                published(
                    "pypi",
                    "weather",
                    "0.5.0",
                    runtimeHint="uvx",
                    environmentVariables=[{"name": "UNITS", "default": "celsius"}],
                )
            ]
        },
        ["pypi"],
        [],
        {},
        {"command": "uvx", "args": ["weather==0.5.0"], "env": {"UNITS": "celsius"}},
    ),
    "image with many arguments": Example(
        {"packages": [published("oci", "docker.io/a/database:3.1.0", **DATABASE)]},
        ["oci"],
        ["DB_PASSWORD", "database_name", "db_type"],
        {"db_type": ["mysql"], "database_name": ["shop"]},
        {
            "command": "docker",
            "args": [
                *(
                    "run",
                    "-i",
                    "--rm",
                    "--network",
                    "host",
                    "-e",
                    "DB_TYPE=mysql",
                    "-e",
                    "DB_PASSWORD",
                    "-e",
                    "SSL_MODE",
                ),
                *("docker.io/a/database:3.1.0", "--host", "localhost", "shop"),
            ],
            "env": {"DB_PASSWORD": "${DB_PASSWORD}", "SSL_MODE": "prefer"},
        },
    ),
    "remote or package": Example(
        {"packages": [published("npm", "@a/hybrid", "1.5.0")], "remotes": REMOTES},
        ["npm", "remote", "remote-2"],
        [],
        {},
        {"command": "npx", "args": ["-y", "@a/hybrid@1.5.0"]},
    ),
    "remote with headers": Example(
        {"remotes": REMOTES[:1]},
        ["remote"],
        ["X-API-Key"],
        {"X-API-Key": ["k3y"]},
        {
            "type": "http",
            "url": "https://mcp.example.com/http",
            "headers": {"X-API-Key": "k3y", "X-Region": "us-east-1"},
        },
    ),
    "server inside a command line tool": Example(
        {
            "packages": [
                published(
                    "npm",
                    "cli",
                    "1.1298.0",
                    packageArguments=[
                        {"type": "positional", "value": "mcp"},
                        {"type": "named", "name": "-t", "default": "stdio", "choices": ["stdio", "sse"]},
                    ],
                )
            ]
        },
        ["npm"],
        [],
        {},
        {"command": "npx", "args": ["-y", "cli@1.1298.0", "mcp", "-t", "stdio"]},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_documented_form_becomes_a_definition(name: str) -> None:
    example = EXAMPLES[name]
    options = install_options(example.document)
    assert [option.id for option in options] == example.options
    assert sorted(each.name for each in options[0].inputs if each.required and each.default is None) == example.required
    assert option_entry(options[0], example.values) == example.entry


def test_server_that_only_names_a_web_page_cannot_be_run() -> None:
    assert install_options({"name": "a/b", "version": "0.1.0", "websiteUrl": "https://example.com"}) == ()


def test_bundle_is_an_option_with_its_address() -> None:
    bundle = published("mcpb", "https://example.com/editor.mcpb", fileSha256="f" * 64)
    (option,) = install_options({"packages": [bundle]})
    assert option.id == "mcpb"
