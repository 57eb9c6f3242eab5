"""Plugins as installed packages: listed without being imported, loaded when granted, removed when revoked."""

import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import pytest

from integration.tools.plugins.packages import TOOLS, install
from toolcrib import Crib, Settings
from toolcrib.model.errors import ConfigError, Conflict, NotFound
from toolcrib.model.plugins import Plugin
from toolcrib.model.tools import ToolRef
from toolcrib.testing.environments import bare_environment

pytestmark = pytest.mark.anyio

GREET = ToolRef("hello", "greet")


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an installation folder on the path, and drop the modules imported from it afterwards."""
    folder = tmp_path / "target"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("demo_")]:
        del sys.modules[name]


@pytest.fixture
async def crib(tmp_path: Path, target: Path) -> AsyncGenerator[Crib]:
    (tmp_path / "user").mkdir()
    settings = Settings(home=tmp_path / "home", port=0, default_cwd=tmp_path / "user")
    async with Crib(settings, environment=bare_environment(tmp_path / "user")) as crib:
        yield crib


async def grant(crib: Crib, name: str = "hello") -> Plugin:
    plugin = await crib.plugins.get(name)
    assert plugin.manifest is not None
    return await crib.plugins.grant(name, plugin.manifest.digest, by="owner")


async def test_ungranted_plugin_is_listed_without_being_imported(crib: Crib, target: Path) -> None:
    package = install(target)
    (plugin,) = await crib.plugins.list()
    assert (plugin.name, plugin.package, plugin.state, plugin.servers) == (
        "hello", "demo-hello", "not_granted", ("hello",),
    )  # fmt: skip
    assert plugin.manifest is not None
    assert plugin.manifest.capabilities == ("network",)
    assert not (package / "imported").exists()
    assert not crib.catalog.has_server("hello")


async def test_granted_plugin_tools_are_gated_with_a_default_timeout_of_30_seconds(crib: Crib, target: Path) -> None:
    install(target)
    plugin = await grant(crib)
    assert (plugin.state, plugin.tools) == ("loaded", ("hello/greet", "hello/slow"))
    result = await crib.call("hello/greet", {"name": "Ada"}, principal=crib.owner(source="web"))
    assert result.content[0]["text"] == "Hello, Ada."
    tools = crib.catalog.snapshot.tools
    assert (tools[GREET].kind, tools[GREET].timeout) == ("plugin", 30.0)
    assert tools[ToolRef("hello", "slow")].timeout == 5.0
    refused = await crib.why(GREET, principal=crib.owner(source="scheduler", mode="default"))
    assert refused.verdict == "deny"


async def test_grant_survives_a_restart_and_ends_when_revoked(tmp_path: Path, target: Path) -> None:
    install(target)
    settings = Settings(home=tmp_path / "home", port=0)
    async with Crib(settings, environment=bare_environment(tmp_path)) as crib:
        await grant(crib)
    async with Crib(settings, environment=bare_environment(tmp_path)) as crib:
        assert crib.catalog.has_server("hello")
        gone = await crib.plugins.revoke("hello")
        assert gone is not None
        assert gone.state == "not_granted"
        assert not crib.catalog.has_server("hello")
        with pytest.raises(NotFound, match="has no grant"):
            await crib.plugins.revoke("hello")


async def test_disabled_plugin_loads_again_without_a_new_grant(crib: Crib, target: Path) -> None:
    install(target)
    await grant(crib)
    assert (await crib.plugins.switch("hello", enabled=False)).state == "disabled"
    assert not crib.catalog.has_server("hello")
    assert (await crib.plugins.switch("hello", enabled=True)).state == "loaded"
    assert crib.catalog.has_server("hello")


@pytest.mark.parametrize(
    ("version", "capabilities", "description"),
    [
        ("1.1", '["network"]', "Says hello."),
        ("1.0", '["network", "secrets"]', "Says hello."),
        ("1.0", '["network"]', "x"),
    ],
)
async def test_plugin_with_a_changed_manifest_is_not_loaded(
    crib: Crib, target: Path, version: str, capabilities: str, description: str
) -> None:
    install(target)
    shown = await grant(crib)
    manifest = f'name = "hello"\nversion = "{version}"\ndescription = "{description}"\ncapabilities = {capabilities}\n'
    install(target, version=version, manifest=manifest)
    assert (await crib.plugins.get("hello")).state == "changed"
    assert not crib.catalog.has_server("hello")
    assert shown.manifest is not None
    with pytest.raises(Conflict, match="changed after you reviewed it"):
        await crib.plugins.grant("hello", shown.manifest.digest, by="owner")


async def test_new_version_of_a_loaded_plugin_needs_a_restart(crib: Crib, target: Path) -> None:
    install(target)
    await grant(crib)
    install(target, version="2.0")
    plugin = await grant(crib)
    assert plugin.state == "failed"
    assert "next start" in plugin.problems[0].message


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("raise RuntimeError('no way')", "no way"),
        ("import a_package_that_is_not_there", "a_package_that_is_not_there"),
        ("raise SystemExit(3)", "SystemExit"),
        ("x = 1", "has no tools"),
    ],
)
async def test_failing_plugin_is_one_problem_and_others_load(crib: Crib, target: Path, tools: str, reason: str) -> None:
    install(target, name="broken", tools=tools)
    install(target)
    plugin = await grant(crib, "broken")
    assert plugin.state == "failed"
    assert reason in plugin.problems[0].message
    assert (await grant(crib)).state == "loaded"
    assert [problem.code for problem in crib.catalog.snapshot.problems] == ["plugin.failed"]


async def test_plugin_whose_server_name_is_taken_fails(crib: Crib, target: Path) -> None:
    install(target, name="toolcrib")
    plugin = await grant(crib, "toolcrib")
    assert plugin.state == "failed"
    assert "already registered" in plugin.problems[0].message
    assert (await crib.call("toolcrib/ping", principal=crib.owner(source="web"))).is_error is False


async def test_entry_point_to_a_server_sets_its_name_and_kind(crib: Crib, target: Path) -> None:
    server = 'from toolcrib import ToolServer\nserver = ToolServer("other", tools=[greet], kind="builtin")\n'
    install(target, tools=f"{TOOLS}\n{server}", entry="demo_hello.tools:server")
    assert (await grant(crib)).tools == ("hello/greet",)
    assert crib.catalog.snapshot.tools[GREET].kind == "plugin"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ("name =", "not TOML"),
        ('name = "hello"\nversion = "1.0"\ndescription = "x"\n', "capabilities"),
        ('name = "hello"\nversion = "1.0"\ndescription = "x"\ncapabilities = ["all"]\n', "'all' is not a capability"),
        ('name = "hello"\nversion = "1.0"\ndescription = "x"\ncapabilities = []\nextra = 1\n', "`extra`"),
        ('name = "hello"\nversion = "9.9"\ndescription = "x"\ncapabilities = []\n', "version 9.9"),
        ('name = "a b"\nversion = "1.0"\ndescription = "x"\ncapabilities = []\n', "1 to 100 letters"),
    ],
)
async def test_plugin_with_an_invalid_manifest_cannot_be_granted(
    crib: Crib, target: Path, manifest: str, expected: str
) -> None:
    install(target, manifest=manifest)
    (plugin,) = await crib.plugins.list()
    assert plugin.state == "invalid"
    assert expected in plugin.problems[0].message
    with pytest.raises(ConfigError):
        await crib.plugins.grant(plugin.name, "any", by="owner")


async def test_package_of_the_same_name_elsewhere_is_not_loaded(
    crib: Crib, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(target)
    await grant(crib)
    impostor = install(tmp_path / "project")
    for info in (tmp_path / "project").glob("*.dist-info"):
        for file in info.iterdir():
            file.unlink()
        info.rmdir()
    sys.modules.pop("demo_hello.tools")
    sys.modules.pop("demo_hello")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project"), *sys.path])
    plugin = await crib.plugins.get("demo-hello")
    assert plugin.state == "invalid"
    assert "not found where it was installed" in plugin.problems[0].message
    assert not (impostor / "imported").exists()


async def test_package_in_the_working_directory_is_not_a_plugin(
    crib: Crib, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(target)
    monkeypatch.chdir(target)
    assert await crib.plugins.list() == ()


async def test_call_in_flight_completes_when_its_plugin_is_revoked(crib: Crib, target: Path) -> None:
    source = "import anyio\nfrom toolcrib import tool\ngo = anyio.Event()\nbegun = anyio.Event()\n"
    source += (
        '@tool\nasync def wait() -> str:\n    """Wait."""\n    begun.set()\n    await go.wait()\n    return "done"\n'
    )
    install(target, tools=source)
    await grant(crib)
    module = sys.modules["demo_hello.tools"]
    texts: list[str] = []

    async def call() -> None:
        result = await crib.call("hello/wait", principal=crib.owner(source="web", mode="acceptEdits"))
        texts.append(str(result.content[0]["text"]))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await module.begun.wait()
            await crib.plugins.revoke("hello")
            module.go.set()
    assert texts == ["done"]
