"""The bench's tools as modules of a crib: one echo, and many of ordinary size for lists."""

from pathlib import Path

from bench.tool_schemas import DESCRIPTION, PARAMETERS

ECHO_MODULE = '''"""The tool that is measured."""

from toolcrib import tool


@tool(read_only=True)
async def echo(text: str) -> str:
    """Echo the text."""
    return text
'''

MANY_PER_MODULE = 100


def write_echo(folder: Path) -> None:
    """Write the echo as a module of the crib's own tools folder: server `bench`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.py").write_text(ECHO_MODULE, encoding="utf-8")


def write_many(folder: Path, count: int) -> None:
    """Write this many tools, a hundred per module: servers `many00`, `many01`, …"""
    folder.mkdir(parents=True, exist_ok=True)
    customer, status, limit = PARAMETERS.values()
    for start in range(0, count, MANY_PER_MODULE):
        lines = ["from typing import Annotated", "from toolcrib import tool"]
        for index in range(start, min(start + MANY_PER_MODULE, count)):
            lines += [
                "@tool(read_only=True)",
                f"async def tool_{index:04}(customer: Annotated[str, {customer!r}],"
                f" status: Annotated[str, {status!r}] = '', limit: Annotated[int, {limit!r}] = 10) -> str:",
                f'    """{DESCRIPTION}"""',
                "    return customer",
            ]
        (folder / f"many{start // MANY_PER_MODULE:02}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
