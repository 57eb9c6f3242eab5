"""The two paths that readers follow most, one call and one definition, pass through few modules and packages."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import anyio
import pytest

from bench.client import FIRST_ID, Address, Connection, prepare
from bench.subjects import CHILD_VARIABLES, ROOT, light_upstream_command, write_servers
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.host.crib import Crib
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import hold

SOURCE = ROOT / "src" / "toolcrib"
MOST_MODULES = 25
MOST_PACKAGES = 6
"""The most modules and packages of one call. Both only shrink."""
MOST_FOR_A_DEFINITION = 58
"""The most modules of one definition, from its file to the catalog. It only shrinks."""
pytestmark = pytest.mark.anyio


class Trace:
    """Records the modules of this project whose functions run while it is active."""

    def __init__(self) -> None:
        self.is_active = False
        self.functions: dict[str, set[str]] = {}
        self._paths: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if not self.is_active or event != "call" or frame.f_code.co_name == "<module>":
            return
        name = frame.f_code.co_filename
        if name not in self._paths:
            path = Path(name)
            self._paths[name] = str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else None
        if (module := self._paths[name]) is not None:
            self.functions.setdefault(module, set()).add(frame.f_code.co_qualname)

    def take(self) -> dict[str, set[str]]:
        """Return the recorded functions by module, and reset the record."""
        recorded, self.functions = self.functions, {}
        return recorded


@contextmanager
def tracing() -> Generator[Trace]:
    """Trace this thread and every thread started in the block."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def modules_of_one_call(folder: Path) -> dict[str, set[str]]:
    """Return the functions, by module, that run in every one of ten calls of a stdio server's tool over `/mcp`."""
    home = prepare_home(folder / "home")
    command, *args = light_upstream_command()
    write_servers(home.root, {"child": {"command": command, "args": args, "env": CHILD_VARIABLES}})
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    with tracing() as trace:
        async with hold(Settings(home=home.root, port=0), kind="serve", environment=environment) as holding:
            token = owner_token(holding.crib.home)
            async with ApiClient(holding.info.url, token, source="api") as client:
                with anyio.fail_after(60):
                    async for _ in client.events(0):
                        if (await client.server("child"))["state"] == "connected":
                            break
            address = Address(f"{holding.info.url}/mcp", token)
            params = {"name": "child_echo", "arguments": {"text": "hello"}}
            request = prepare(address, "tools/call", params, "child_echo")
            connection = await Connection.open(address)
            seen: list[dict[str, set[str]]] = []
            for number in range(11):
                trace.is_active = True
                answer = await connection.send(request(FIRST_ID + number))
                trace.is_active = False
                assert b"hello" in answer
                seen.append(trace.take())
            connection.close()
    return {module: seen[1][module] for module in sorted(seen[1]) if all(module in each for each in seen[2:])}


async def test_one_call_passes_through_few_modules_and_packages(tmp_path: Path) -> None:
    path = await modules_of_one_call(tmp_path)
    packages = {module.split("/")[0] for module in path}
    shown = "\n".join(f"{module}: {', '.join(sorted(functions))}" for module, functions in path.items())
    assert len(path) <= MOST_MODULES, shown
    assert len(packages) <= MOST_PACKAGES, shown


async def modules_of_one_definition(folder: Path) -> dict[str, set[str]]:
    """Return the functions, by module, that put the tools of a definition into the catalog of each of six projects.

    The file is read again for each project. The server connects first, so its tools are known.

    """
    home = prepare_home(folder / "home")
    command, *args = light_upstream_command()
    entry = {"command": command, "args": args, "env": CHILD_VARIABLES}
    write_servers(home.root, {"child": entry})
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    seen: list[dict[str, set[str]]] = []
    with tracing() as trace:
        async with Crib(Settings(home=home.root), environment=environment) as crib:
            owner = crib.principals.owner("api")
            with anyio.fail_after(60):
                await crib.ready(owner, "child")
                for number in range(6):
                    project = folder / f"project-{number}"
                    project.mkdir()
                    write_servers(home.root, {"child": entry, f"other-{number}": {**entry, "disabled": True}})
                    in_project = replace(owner, cwd=str(project))
                    trace.is_active = True
                    await crib.placed(in_project)
                    trace.is_active = False
                    assert ToolRef("child", "echo") in crib.catalog.at(str(project)).tools
                    seen.append(trace.take())
    return {module: seen[0][module] for module in sorted(seen[0]) if all(module in each for each in seen[1:])}


async def test_one_definition_passes_through_few_modules(tmp_path: Path) -> None:
    path = await modules_of_one_definition(tmp_path)
    shown = "\n".join(f"{module}: {', '.join(sorted(functions))}" for module, functions in path.items())
    assert len(path) <= MOST_FOR_A_DEFINITION, shown
