"""Indexing a hundred thousand lines of source code, and finding symbols in them."""

import os
import statistics
import subprocess
import time
from pathlib import Path

import anyio

from bench.report import Row
from toolcrib.agents.symbols.index import Symbols

LINES = 100_000
QUESTIONS = 20
_PYTHON = """\
class Order{n}:
    LIMIT = {n}

    def __init__(self, customer: str, total: float) -> None:
        self.customer = customer
        self.total = total

    def price(self, discount: float = 0.0) -> float:
        if discount > self.LIMIT:
            raise ValueError(f"{{discount}} is too much for {{self.customer}}")
        return round(self.total * (1 - discount), 2)


def make_order_{n}(customer: str) -> Order{n}:
    # Customers pay on delivery.
    order = Order{n}(customer, total={n}.5)
    return order if order.price() > 0 else Order{n}(customer, 1.0)

"""
_TYPESCRIPT = """\
export interface Shape{n} {{ area(): number; side: number }}

export class Square{n} implements Shape{n} {{
  constructor(readonly side: number) {{}}
  area(): number {{
    const result = this.side * this.side;
    return result > {n} ? result : {n};
  }}
}}

export const makeSquare{n} = (side: number): Shape{n} => new Square{n}(side);

"""
_GO = """\
type Ship{n} struct {{
	Name  string
	Speed int
}}

// Sail moves the ship.
func (s *Ship{n}) Sail(hours int) (int, error) {{
	if hours < 0 {{
		return 0, errNegative
	}}
	return s.Speed * hours, nil
}}

func NewShip{n}(name string) *Ship{n} {{
	return &Ship{n}{{Name: name, Speed: {n}}}
}}

"""
_KINDS = {"py": ("", _PYTHON), "ts": ("", _TYPESCRIPT), "go": ("package fleet\n\n", _GO)}
_PER_FILE = 8


def write_code(root: Path, lines: int) -> int:
    """Write a repository with at least this many lines in files of three languages. Return the number of files."""
    written = number = 0
    while written < lines:
        for ending, (head, piece) in _KINDS.items():
            text = head + "".join(piece.format(n=number * _PER_FILE + at) for at in range(_PER_FILE))
            file = root / f"part{number % 50}" / f"file{number}.{ending}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            written += text.count("\n")
            number += 1
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True)
    return number


async def _asked(root: Path, files: int) -> dict[str, float]:
    """Return the seconds of the first index, of a search, of references, and of a search after a change."""
    symbols = Symbols(dict(os.environ))

    async def find(name: str) -> float:
        started = time.perf_counter()
        found = await symbols.find(root, name, (), 20)
        if found.state.files != files or not found.items:
            raise RuntimeError(f"Only {found.state.files} files of {files} were read.")
        return time.perf_counter() - started

    async def refer(name: str) -> float:
        started = time.perf_counter()
        if not (await symbols.references(root, name, 50)).items:
            raise RuntimeError(f"{name} was not found.")
        return time.perf_counter() - started

    async def change(number: int) -> float:
        with (root / "part0" / "file0.py").open("a", encoding="utf-8") as file:
            file.write(f"\nadded_{number} = {number}\n")
        return await find(f"added_{number}")

    first = await find("Order0")
    found = [await find(name) for name in ("make_order", "Ship", "area", "price") * (QUESTIONS // 4)]
    referred = [await refer(name) for name in ("customer", "Square8", "Sail", "Speed") * (QUESTIONS // 4)]
    changed = [await change(number) for number in range(3)]
    taken = {"first": [first], "found": found, "referred": referred, "changed": changed}
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure_symbols(folder: Path) -> list[Row]:
    """Return the rows of source code."""
    root = folder / "code"
    files = write_code(root, LINES)
    taken = anyio.run(_asked, root, files)
    return [
        Row(f"index {LINES:,} lines in {files:,} files", "s", taken["first"], limit=20),
        Row("find symbols in them", "ms", 1000 * taken["found"], limit=50),
        Row("find references in them", "ms", 1000 * taken["referred"], limit=50),
        Row("find a symbol of a file that changed", "ms", 1000 * taken["changed"]),
    ]
