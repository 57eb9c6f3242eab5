"""`server.json` of the registry: the definition from each kind of package, argument, variable, header and remote."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.servers.registry.server_json import install_options, option_entry

STDIO: JsonObject = {"type": "stdio"}


class Case(NamedTuple):
    """One way to run a server, the user's values, and the definition."""

    published: JsonObject
    values: Mapping[str, Sequence[str]]
    entry: JsonObject


def package(kind: str, identifier: str = "tool", version: str = "1.2.3", **more: Any) -> JsonObject:
    return {"registryType": kind, "identifier": identifier, "version": version, "transport": STDIO, **more}


def positional(hint: str, **more: Any) -> JsonObject:
    return {"type": "positional", "valueHint": hint, **more}


def named(name: str, **more: Any) -> JsonObject:
    return {"type": "named", "name": name, **more}


MOUNT = named(
    "--mount",
    value="type=bind,src={source},dst={target}",
    isRepeated=True,
    variables={"source": {"isRequired": True}, "target": {"default": "/project"}},
)
PACKAGES: dict[str, Case] = {
    "npm": Case(package("npm", "@a/tool"), {}, {"command": "npx", "args": ["-y", "@a/tool@1.2.3"]}),
    "pypi": Case(package("pypi"), {}, {"command": "uvx", "args": ["tool==1.2.3"]}),
    "nuget": Case(package("nuget", "A.Tool"), {}, {"command": "dnx", "args": ["A.Tool@1.2.3", "--yes"]}),
    "nuget with arguments": Case(
        package("nuget", "A.Tool", packageArguments=[{"type": "positional", "value": "start"}]),
        {},
        {"command": "dnx", "args": ["A.Tool@1.2.3", "--yes", "--", "start"]},
    ),
    "oci with a tag": Case(
        package("oci", "reg.example/a/tool:v2", ""),
        {},
        {"command": "docker", "args": ["run", "-i", "--rm", "reg.example/a/tool:v2"]},
    ),
    "oci by digest": Case(
        package("oci", "reg.example/a/tool@sha256:00", ""),
        {},
        {"command": "docker", "args": ["run", "-i", "--rm", "reg.example/a/tool@sha256:00"]},
    ),
    "oci with another runtime": Case(
        package("oci", "a/tool", runtimeHint="podman"),
        {},
        {"command": "podman", "args": ["run", "-i", "--rm", "a/tool:1.2.3"]},
    ),
    "old spelling": Case(
        {
            "registry_type": "npm",
            "identifier": "tool",
            "version": "1",
            "runtime_hint": "npx",
            "runtime_arguments": [{"type": "named", "name": "--quiet"}],
            "package_arguments": [{"type": "positional", "value_hint": "dir", "is_required": True}],
            "environment_variables": [{"name": "KEY", "is_required": True, "is_secret": True}],
        },
        {},
        {"command": "npx", "args": ["-y", "--quiet", "tool@1", "${dir}"], "env": {"KEY": "${KEY}"}},
    ),
    "runtime that is no runner": Case(
        package("npm", runtimeHint="sh", runtimeArguments=[named("-c", value="true")]),
        {},
        {"command": "npx", "args": ["-y", "-c", "true", "tool@1.2.3"]},
    ),
    "repeated positional": Case(
        package("npm", packageArguments=[positional("dir", isRepeated=True, isRequired=True, default="/d")]),
        {"dir": ["/a", "/b"]},
        {"command": "npx", "args": ["-y", "tool@1.2.3", "/a", "/b"]},
    ),
    "default of a repeated positional": Case(
        package("npm", packageArguments=[positional("dir", isRepeated=True, isRequired=True, default="/d")]),
        {},
        {"command": "npx", "args": ["-y", "tool@1.2.3", "/d"]},
    ),
    "repeated argument with variables": Case(
        package("oci", "a/tool", runtimeArguments=[MOUNT]),
        {"source": ["/a", "/b"], "target": ["/x", "/y"]},
        {
            "command": "docker",
            "args": [
                "run",
                "-i",
                "--rm",
                "--mount",
                "type=bind,src=/a,dst=/x",
                "--mount",
                "type=bind,src=/b,dst=/y",
                "a/tool:1.2.3",
            ],
        },
    ),
    "required variable of an argument": Case(
        package("oci", "a/tool", runtimeArguments=[MOUNT]),
        {},
        {
            "command": "docker",
            "args": ["run", "-i", "--rm", "--mount", "type=bind,src=${source},dst=/project", "a/tool:1.2.3"],
        },
    ),
    "named, optional and flags": Case(
        package(
            "pypi",
            packageArguments=[
                named("--host", default="localhost", isRequired=True),
                named("--port", format="number"),
                named("--verbose", format="boolean"),
                positional("database", isRequired=True),
            ],
        ),
        {"port": ["5432"], "verbose": ["false"], "database": ["main"]},
        {"command": "uvx", "args": ["tool==1.2.3", "--host", "localhost", "--port", "5432", "main"]},
    ),
    "variables of a container": Case(
        package("oci", "a/tool", environmentVariables=[{"name": "LEVEL", "default": "info"}, {"name": "OFF"}]),
        {},
        {"command": "docker", "args": ["run", "-i", "--rm", "-e", "LEVEL", "a/tool:1.2.3"], "env": {"LEVEL": "info"}},
    ),
    "unknown placeholder": Case(
        package("npm", packageArguments=[{"type": "positional", "value": "{kept}"}]),
        {},
        {"command": "npx", "args": ["-y", "tool@1.2.3", "{kept}"]},
    ),
    "package that listens": Case(
        package(
            "npm",
            transport={"type": "streamable-http", "url": "http://127.0.0.1:{port}/{PATH_PART}"},
            packageArguments=[named("--port", valueHint="number", default="8080")],
            environmentVariables=[{"name": "PATH_PART", "value": "mcp"}],
        ),
        {"port": ["9090"]},
        {"type": "http", "url": "http://127.0.0.1:9090/mcp"},
    ),
    "package that listens, by hint": Case(
        package(
            "npm",
            transport={"type": "sse", "url": "http://127.0.0.1:{number}/sse"},
            packageArguments=[named("--port", valueHint="number", default="8080")],
        ),
        {},
        {"type": "sse", "url": "http://127.0.0.1:8080/sse"},
    ),
}
REMOTES: dict[str, Case] = {
    "headers": Case(
        {
            "type": "streamable-http",
            "url": "https://a.example/mcp",
            "headers": [
                {"name": "X-Key", "isRequired": True, "isSecret": True},
                {"name": "X-Region", "default": "eu", "choices": ["eu", "us"]},
                {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}},
            ],
        },
        {"X-Region": ["us"]},
        {
            "type": "http",
            "url": "https://a.example/mcp",
            "headers": {"X-Key": "${X_Key}", "X-Region": "us", "Authorization": "Bearer ${token}"},
        },
    ),
    "variables in the URL": Case(
        {
            "type": "sse",
            "url": "{base}/{tenant}/sse",
            "variables": {"base": {"isRequired": True}, "tenant": {"default": "main"}},
        },
        {"base": ["https://a.example"]},
        {"type": "sse", "url": "https://a.example/main/sse"},
    ),
    "old spelling": Case(
        {"transport_type": "sse", "url": "https://a.example/sse"}, {}, {"type": "sse", "url": "https://a.example/sse"}
    ),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_package_becomes_the_command_that_runs_it(name: str) -> None:
    case = PACKAGES[name]
    (option,) = install_options({"packages": [case.published]})
    assert option_entry(option, case.values) == case.entry


@pytest.mark.parametrize("name", REMOTES)
def test_remote_becomes_its_url_and_headers(name: str) -> None:
    case = REMOTES[name]
    (option,) = install_options({"remotes": [case.published]})
    assert option_entry(option, case.values) == case.entry


def test_value_outside_the_choices_is_rejected() -> None:
    (option,) = install_options({"remotes": [REMOTES["headers"].published]})
    with pytest.raises(InvalidRequest, match="must be one of eu, us"):
        option_entry(option, {"X-Region": ["mars"]})
