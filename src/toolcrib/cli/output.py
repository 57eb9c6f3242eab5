"""All output of the command line, and the only module that prints.

Standard output is data, standard error is messages. Untrusted text passes `safe` before it reaches a terminal, so that
it can neither move the cursor, nor hide, nor imitate our output.

Must never write a string that did not pass `safe` or `_escaped`; only `draw` accepts what `chat.screen` made of safe
text.
"""

import contextlib
import errno
import io
import json
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn, TextIO

import orjson

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.text import is_unseen, visible
from toolcrib.model.times import relative_time

_UNPLAIN = re.compile(r"[^\n\t -~]+")
_CELL_LIMIT = 160
_GAP = 2
_NARROWEST = 10
"""Wider columns shrink if a terminal is too narrow."""
_TONED = frozenset({"state", "status", "decision", "outcome", "effect"})
"""Columns whose words are coloured on a terminal."""
_TONES = {
    "green": ("✓", ("connected", "allow", "ok", "approved", "completed", "ready", "running", "active")),
    "yellow": (
        "!",
        ("ask", "not trusted", "needs sign-in", "waiting", "pending", "held", "out of date", "interrupted"),
    ),
    "red": ("✗", ("setup problem", "can't reach", "deny", "denied", "hidden", "failed", "invalid", "error", "expired")),
}
"""Per colour: its symbol, and how the words begin."""


def safe(text: str) -> str:
    """Return text that is safe for a terminal: no control sequences or hidden characters."""
    return visible(text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = _CELL_LIMIT) -> str:
    """Return safe text on one line: whitespace collapsed, truncated with an ellipsis."""
    line = " ".join(safe(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def when(moment: str | None) -> str:
    """Return an ISO 8601 time relative to now, and nothing for none. JSON documents keep the exact time."""
    return relative_time((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()) if moment else ""


def line(text: str = "") -> None:
    """Print a line of data."""
    _write(sys.stdout, safe(text) + "\n")


def note(text: str) -> None:
    """Print a message to standard error."""
    _write(sys.stderr, safe(text) + "\n")


def part(text: str) -> None:
    """Print data without a line break."""
    _write(sys.stdout, safe(text))


def draw(made: str) -> None:
    """Print prepared terminal output: safe text plus our own control sequences."""
    _write(sys.stdout, made)


def prompt(text: str) -> None:
    """Print a prompt; the answer is typed on the same line."""
    _write(sys.stderr, f"{safe(text)} ")


def warn_all(problems: Sequence[JsonObject]) -> None:
    """Print problems as warnings, each with location and hint."""
    for problem in problems:
        place = "".join(f"{problem[part]}:" for part in ("file", "line") if part in problem)
        text = f"{place} {problem['message']}" if place else problem["message"]
        hint = f"\n  hint: {_indent(problem['hint'])}" if "hint" in problem else ""
        note(f"warning: {_indent(text)}{hint}")


def document(value: Json) -> None:
    """Print one JSON document."""
    _write(sys.stdout, _escape(_indented_json(value)) + "\n")


def record(value: JsonObject) -> None:
    """Print one JSON object on a single line (JSON Lines)."""
    _write(sys.stdout, _escape(json.dumps(value, ensure_ascii=_ascii_only())) + "\n")


def raw(lines: bytes) -> None:
    """Print JSON lines unchanged, because readers may verify their hashes."""
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _give_up(sys.stdout)


def pretty(value: Json) -> str:
    """Return indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def compact(value: Json) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def editable(value: Json) -> str:
    """Return JSON on one line for editing; hidden characters are escaped, which keeps the value."""
    return _escape(json.dumps(value, ensure_ascii=False))


def _indented_json(value: Json) -> str:
    if not _ascii_only():
        # Long lists take a tenth of the time, but numbers beyond 64 bits and lone surrogates are refused.
        with contextlib.suppress(TypeError):
            return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return json.dumps(value, ensure_ascii=_ascii_only(), indent=2)


def _ascii_only() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower()


def _escape(text: str) -> str:
    """Return the JSON with control and hidden characters written as `\\u` escapes; only strings can contain them."""

    def escape(run: re.Match[str]) -> str:
        return "".join(_json_escape(each) if is_unseen(each) else each for each in run[0])

    return _UNPLAIN.sub(escape, text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: wrapped for a terminal, else aligned with spaces."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(headers, cells)
    else:
        _align([[header.upper() for header in headers], *cells])


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits the terminal: long cells wrap, short ones stay whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from toolcrib.base.settings import Environment

    # Rich alone would leave out colours, but keep bold.
    colours = None if Environment.current().get("NO_COLOR") else "auto"
    console = Console(color_system=colours, highlight=False, markup=False, emoji=False)
    toned = [[_tone(header, cell) for header, cell in zip(headers, row, strict=True)] for row in rows]
    columns = zip(headers, *([cell for cell, _ in row] for row in toned), strict=True)
    widths = fit_widths([max(width(cell) for cell in column) for column in columns], console.width)
    if widths is None:
        _list(headers, rows)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for header, wide in zip(headers, widths, strict=True):
        drawn.add_column(header, overflow="fold", width=wide)
    for row in toned:
        drawn.add_row(*(Text(cell, style=tone) for cell, tone in row))
    console.print(drawn)


def _tone(header: str, cell: str) -> tuple[str, str]:
    """Return a cell with a symbol for its state, and its colour."""
    for colour, (symbol, words) in _TONES.items():
        if header in _TONED and cell.startswith(words):
            return f"{symbol if not _ascii_only() else '*'} {cell}", colour
    return cell, ""


def fit_widths(widths: Sequence[int], room: int) -> list[int] | None:
    """Return column widths that fit, shrinking the widest first; None if columns would be unreadable."""
    fitting = list(widths)
    room -= _GAP * (len(fitting) - 1)
    while sum(fitting) > room:
        widest = max(range(len(fitting)), key=fitting.__getitem__)
        if fitting[widest] <= _NARROWEST:
            return None
        fitting[widest] -= 1
    return fitting


def _list(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line per non-empty cell, for terminals too narrow for columns."""
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
    """Return how many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(each).startswith("M") else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def failure(error: ToolcribError, *, as_json: bool, result: JsonObject | None = None) -> None:
    """Print an error and its hint to standard error, and as one JSON document to standard output if requested.

    `result` is what the command found out before it failed; the document contains it too.
    """
    if as_json:
        shape: JsonObject = {"code": error.code, "message": error.message}
        document({**(result or {}), "error": shape | ({"hint": error.hint} if error.hint else {})})
    note(f"error: {_indent(error.message)}" + (f"\n\nhint: {_indent(error.hint)}" if error.hint else ""))


def _indent(text: str) -> str:
    """Indent continuation lines, so that quoted text cannot imitate our own lines."""
    return text.replace("\n", "\n  ")


def prepare_streams() -> None:
    """Escape characters that the terminal's encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave(code: int) -> NoReturn:
    """Exit with this code, even if a thread of a tool does not end. Everything is closed by now."""
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        flush()
        os._exit(code)
    sys.exit(code)


def flush() -> None:
    """Flush standard output and standard error."""
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
    """Discard further output after the reader is gone, also the flush at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
