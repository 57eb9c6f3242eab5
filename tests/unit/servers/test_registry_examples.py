"""Servers in the forms that the registry documents: their options, inputs and definitions.

Each document is a short form of an example in the registry's description of `server.json`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from toolcrib.model.json import JsonObject
from toolcrib.servers.registry.server_json import install_options, option_entry, option_fault


class Example(NamedTuple):
    """A document, the ids of its options, the required inputs of the first, the user's values, and the definition."""

    document: JsonObject
    options: Sequence[str]
    required: Sequence[str]
    values: Mapping[str, Sequence[str]]
    entry: JsonObject


def published(kind: str, identifier: str, version: str = "", **more: Any) -> JsonObject:
    """Return a package with its transport."""
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


def test_server_with_only_a_web_page_has_no_options() -> None:
    assert install_options({"name": "a/b", "version": "0.1.0", "websiteUrl": "https://example.com"}) == ()


def test_bundle_is_an_option() -> None:
    bundle = published("mcpb", "https://example.com/editor.mcpb", fileSha256="f" * 64)
    (option,) = install_options({"packages": [bundle]})
    assert option.id == "mcpb"


REFUSED: dict[str, tuple[JsonObject, str]] = {
    "floating tag": (published("npm", "weather", "latest"), "not a specific version"),
    "range": (published("npm", "weather", "^1.2.3"), "not a specific version"),
    "range with a letter": (published("pypi", "weather", "1.x"), "not a specific version"),
    "option of npx": (published("npm", "--registry=http://a.example", "1.0.0"), "not the name of a package"),
    "option of docker": (published("oci", "--privileged", "1.0.0"), "not the name of a package"),
    "address as name": (published("npm", "https://a.example/x.tgz"), "not the name of a package"),
    "repository as name": (published("pypi", "git+https://a.example/x"), "not the name of a package"),
    "another registry": (published("npm", "weather", "1.0.0", registryBaseUrl="https://a.example"), "a.example"),
    "no address": (published("oci", "a/b", "1", registryBaseUrl="https://-v/"), "address of its package registry"),
    "digest of a name": (published("npm", "weather", "1.0.0", fileSha256="0" * 64), "cannot be verified"),
    "nameless": (published("npm", "w", "1", packageArguments=[{"type": "named", "value": "8"}]), "has no name"),
    "valueless": (published("npm", "w", "1", packageArguments=[{"type": "positional"}]), "neither a value nor a hint"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_package_that_could_run_something_else_is_rejected(name: str) -> None:
    package, reason = REFUSED[name]
    (option,) = install_options({"packages": [package]})
    assert reason in (option_fault(option) or "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_documented_form_is_not_rejected(name: str) -> None:
    assert [option_fault(option) for option in install_options(EXAMPLES[name].document)].count(None) >= 1


def test_remote_with_a_local_transport_is_rejected() -> None:
    (option,) = install_options({"remotes": [{"type": "stdio", "url": "https://a.example"}]})
    assert "not one of a remote" in (option_fault(option) or "")


@pytest.mark.parametrize(
    ("name", "run"), [("acme/tool", "a.example/acme/tool:1"), ("b.example/tool", "b.example/tool:1")]
)
def test_image_is_pulled_from_the_published_registry(name: str, run: str) -> None:
    (option,) = install_options({"packages": [published("oci", name, "1", registryBaseUrl="https://a.example")]})
    assert option_fault(option) is None
    assert option_entry(option)["args"][-1] == run
