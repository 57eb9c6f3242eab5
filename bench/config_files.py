"""Measures discovery of 500 configuration files of many apps in a deep repository."""

import json
import time
from pathlib import Path

from toolcrib.servers.discover import discover
from toolcrib.servers.places import TABLE

FILES = 500
LEVELS = 20
RUNS = 3


def write_configs(root: Path) -> Path:
    """Write the repository and return its deepest directory, from which all files apply."""
    rows = [row for row in TABLE if row.scope == "project" and row.path.endswith("json") and "*" not in row.path]
    (root / ".git").mkdir(parents=True)
    deepest = root.joinpath(*(f"level{level}" for level in range(LEVELS)))
    deepest.mkdir(parents=True)
    for level, directory in enumerate((deepest, *deepest.parents)[: LEVELS + 1]):
        for row in rows[: FILES // LEVELS]:
            names = [f"{row.format}-{level}-{number}" for number in range(3)]
            entries = {name: {"command": name, "env": {"A": "${HOME}"}} for name in names}
            file = directory / row.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(dict.fromkeys(("mcpServers", "servers", "mcp"), entries), indent=2), "utf-8")
    return deepest


def discover_seconds(folder: Path) -> float:
    """Return the best wall time of a few runs."""
    deepest = write_configs(folder / "repository")
    taken: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        found = discover({}, deepest, home=folder / "home", crib=folder / "crib", trusted=lambda _: False)
        taken.append(time.perf_counter() - started)
        if len(found.files) < FILES:
            raise RuntimeError(f"Only {len(found.files)} files were read instead of {FILES}.")
    return min(taken)
