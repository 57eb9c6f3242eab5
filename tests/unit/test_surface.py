"""The public names of `import toolcrib`, and that importing it is cheap."""

import subprocess
import sys

import toolcrib

SURFACE = {
    "CallResult", "ConfigError", "Conflict", "Context", "Crib", "Denied", "Inject", "InvalidRequest",
    "NotFound", "Principal", "Problem", "Provider", "Settings", "Tool", "ToolRef", "ToolServer", "ToolcribError",
    "Unauthenticated", "Unavailable", "__version__", "bridge", "tool",
}  # fmt: skip


def test_public_names_are_complete_and_importable() -> None:
    assert set(toolcrib.__all__) == SURFACE
    assert all(getattr(toolcrib, name) is not None for name in SURFACE)


def test_import_loads_nothing_heavy() -> None:
    heavy = "{'pydantic', 'sqlalchemy', 'fastapi', 'starlette', 'mcp', 'anyio'}"
    code = f"import sys, toolcrib; print(*({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout.split() == []
