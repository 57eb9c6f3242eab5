"""Everything the command line says, and the only place that prints.

Standard output is data, standard error is talk. Names, descriptions and results come from others: they pass `safe`
before they reach a terminal, so that nothing in them can move the cursor, hide, or pass for words of ours.

Above: every command. Below: `errors`, `model`. It must never write a string that did not pass `safe` or `_escaped`;
only `draw` takes what `chat_screen` has made of safe text.
"""

import errno
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from toolcrib.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.text import is_hidden, visible

_UNPLAIN = re.compile(r"[^\n\t -~]+")
_CELL_LIMIT = 160
_GAP = 2
_NARROWEST = 10
"""Columns that are wider give way where a terminal is too narrow for all."""


def safe(text: str) -> str:
    """The text as a terminal may have it: nothing in it moves the cursor, hides, or passes for words of ours."""
    return visible(text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = _CELL_LIMIT) -> str:
    """The safe text on one line: white space folded, and cut with a sign where it is longer."""
    line = " ".join(safe(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def line(text: str = "") -> None:
    """Data for a person."""
    _write(sys.stdout, safe(text) + "\n")


def note(text: str) -> None:
    """Talk: what a person may want to know and a program need not read."""
    _write(sys.stderr, safe(text) + "\n")


def part(text: str) -> None:
    """A piece of data for a person, the rest of whose line is still to come."""
    _write(sys.stdout, safe(text))


def draw(made: str) -> None:
    """Put on the terminal what was made for it: safe text, and control sequences of our own."""
    _write(sys.stdout, made)


def prompt(text: str) -> None:
    """A question to a person, who answers on the same line."""
    _write(sys.stderr, f"{safe(text)} ")


def warn_all(problems: Sequence[JsonObject]) -> None:
    """Talk of what is wrong, each with its place and what to do next."""
    for problem in problems:
        place = "".join(f"{problem[part]}:" for part in ("file", "line") if part in problem)
        text = f"{place} {problem['message']}" if place else problem["message"]
        hint = f"\n  hint: {_indented(problem['hint'])}" if "hint" in problem else ""
        note(f"warning: {_indented(text)}{hint}")


def document(value: Json) -> None:
    """One JSON document for a program."""
    _write(sys.stdout, _escaped(json.dumps(value, ensure_ascii=_ascii_only(), indent=2)) + "\n")


def record(value: JsonObject) -> None:
    """One JSON object on a line of its own, for a program that reads along."""
    _write(sys.stdout, _escaped(json.dumps(value, ensure_ascii=_ascii_only())) + "\n")


def raw(lines: bytes) -> None:
    """Lines of JSON exactly as they are, since whoever gets them may check their hashes."""
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _give_up(sys.stdout)


def pretty(value: Json) -> str:
    """JSON for a person, to be put into a line."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def compact(value: Json) -> str:
    """JSON for a person on one line."""
    return json.dumps(value, ensure_ascii=False)


def editable(value: Json) -> str:
    """JSON on one line for a person to change; what cannot be seen stands in it as an escape, and means the same."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _ascii_only() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower()


def _escaped(text: str) -> str:
    """The same JSON with what a terminal would obey or hide written as `\\u` escapes; only strings can hold such."""

    def escape(run: re.Match[str]) -> str:
        return "".join(_json_escape(each) if is_hidden(each) else each for each in run[0])

    return _UNPLAIN.sub(escape, text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under headers: drawn for a terminal, else aligned with spaces."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(headers, cells)
    else:
        _align([[header.upper() for header in headers], *cells])


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw within the width of the terminal: long cells go on below themselves, short ones stay whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    columns = zip(headers, *rows, strict=True)
    widths = fitted([max(width(cell) for cell in column) for column in columns], console.width)
    if widths is None:
        _list(headers, rows)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for header, wide in zip(headers, widths, strict=True):
        drawn.add_column(header, overflow="fold", width=wide)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)


def fitted(widths: Sequence[int], room: int) -> list[int] | None:
    """The widths of columns such that all of them fit: the widest give way first; None where none could be read."""
    fitting = list(widths)
    room -= _GAP * (len(fitting) - 1)
    while sum(fitting) > room:
        widest = max(range(len(fitting)), key=fitting.__getitem__)
        if fitting[widest] <= _NARROWEST:
            return None
        fitting[widest] -= 1
    return fitting


def _list(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The same on a terminal that is too narrow for columns: a line for every cell that says something."""
    for number, row in enumerate(rows):
        if number:
            line()
        for header, cell in zip(headers, row, strict=True):
            if cell:
                line(f"{header}: {cell}" if header else cell)


def _align(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True))
        line("  ".join(padded).rstrip())


def width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(each).startswith("M") else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def failure(error: ToolcribError, *, as_json: bool) -> None:
    """What failed and what to do: words on standard error, and JSON on standard output where that was asked for."""
    if as_json:
        shape: JsonObject = {"code": error.code, "message": error.message}
        document({"error": shape | ({"hint": error.hint} if error.hint else {})})
    note(f"error: {_indented(error.message)}" + (f"\n\nhint: {_indented(error.hint)}" if error.hint else ""))


def _indented(text: str) -> str:
    """Further lines stand in from the margin, so that no quoted text can pass for one of our own lines."""
    return text.replace("\n", "\n  ")


def prepare_streams() -> None:
    """Let no character that a terminal's encoding lacks stop a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Let everything that was said reach whoever listens."""
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:  # the terminal was closed
            raise
        _give_up(stream)


def _give_up(stream: TextIO) -> None:
    """Whoever read along has seen enough. What is still to come goes nowhere, also when Python flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
