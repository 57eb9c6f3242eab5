"""The library's surface: what `import toolcrib` offers, and that it costs nothing until used."""

import subprocess
import sys

import toolcrib

SURFACE = {
    "CallResult", "ConfigError", "Conflict", "Context", "Crib", "Denied", "Inject", "InvalidRequest",
    "NotFound", "Principal", "Problem", "Provider", "Settings", "Tool", "ToolRef", "ToolServer", "ToolcribError",
    "Unauthenticated", "Unavailable", "__version__", "bridge", "tool",
}  # fmt: skip


def test_the_surface_is_what_is_written_here_and_every_name_of_it_loads() -> None:
    assert set(toolcrib.__all__) == SURFACE
    assert all(getattr(toolcrib, name) is not None for name in SURFACE)


def test_importing_the_library_loads_nothing_heavy() -> None:
    heavy = "{'pydantic', 'sqlalchemy', 'fastapi', 'starlette', 'mcp', 'anyio'}"
    code = f"import sys, toolcrib; print(*({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout.split() == []
