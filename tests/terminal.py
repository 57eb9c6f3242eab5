"""A terminal for tests: turns output into rows of text as a person would see them, and sends keys."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

LIMIT = 30.0
_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Rows:
    """The rows of a terminal of unlimited height. Keeps unknown control sequences in `obeyed`."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.obeyed: list[str] = []
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._pending = ""

    @property
    def text(self) -> str:
        """All rows, joined by line feeds."""
        return "\n".join("".join(row).rstrip() for row in self._rows)

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column."""
        return self._row, self._column

    def write(self, text: str) -> None:
        """Process the output of a program."""
        text = self._pending + text
        self._pending = ""
        while text:
            if text[0] == "\x1b":
                if (found := _SEQUENCE.match(text)) is None:
                    if len(text) < 12:
                        self._pending = text
                        return
                    self.obeyed.append(text[:12])
                    text = text[1:]
                    continue
                self._obey(found)
                text = text[found.end() :]
            else:
                self._put(text[0])
                text = text[1:]

    def _obey(self, found: re.Match[str]) -> None:
        number = int(found[2]) if found[2].isdecimal() else 1
        match found[3]:
            case "K":
                del self._rows[self._row][self._column :]
            case "A":
                assert self._row - number >= 0
                self._row -= number
            case "C":
                self._column += number
                assert self._column < self.columns
            case "D":
                self._column -= number
                assert self._column >= 0
            case "H":
                self._row = self._column = 0
            case "J":
                del self._rows[self._row][self._column :]
                del self._rows[self._row + 1 :]
            case "m" | "h" | "l":
                pass
            case _:
                self.obeyed.append(found[0])

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row, self._column = self._row + 1, 0
            if self._row == len(self._rows):
                self._rows.append([])
        elif character < " " or character == "\x7f":
            self.obeyed.append(character)
        else:
            if self._column == self.columns:
                self._put("\n")
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = character
            self._column += 1


class Terminal:
    """A program that runs at its own terminal."""

    def __init__(self, descriptor: int, process: Process, columns: int) -> None:
        self.process = process
        self.rows = Rows(columns)
        self.written = ""
        self._descriptor = descriptor
        self._seen = 0

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def enter(self, line: str) -> None:
        """Type a line and send it."""
        self.press(f"{line}\r")

    def resize(self, columns: int) -> None:
        """Change the width, like a user who resizes the window, and clear the rows."""
        self.rows = Rows(columns)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    async def until(self, words: str) -> str:
        """Wait until the new output contains these words. Returns the output since the last wait."""
        try:
            with anyio.fail_after(LIMIT):
                while (place := self.rows.text.find(words, self._seen)) < 0:
                    assert await self._read(), f"the program ended without {words!r}:\n{self.rows.text}"
        except TimeoutError:
            raise AssertionError(f"not shown within {LIMIT} s: {words!r}, but\n{self.rows.text}") from None
        text, end = self.rows.text, place + len(words)
        shown = text[self._seen : end]
        # The last row belongs to the user; the next output replaces it.
        self._seen = min(end, text.rfind("\n") + 1)
        return shown

    async def shows(self, words: str) -> None:
        """Wait until the words appear anywhere on a screen that is redrawn in place."""
        try:
            with anyio.fail_after(LIMIT):
                while words not in self.rows.text:
                    assert await self._read(), f"the program ended without {words!r}:\n{self.rows.text}"
        except TimeoutError:
            raise AssertionError(f"not shown within {LIMIT} s: {words!r}, but\n{self.rows.text}") from None

    async def ended(self) -> int:
        """Wait for the end of the program and return its exit code."""
        with anyio.fail_after(LIMIT):
            while await self._read():
                pass
            return await self.process.wait()

    def is_plain(self) -> bool:
        """Return whether the terminal echoes and edits lines again."""
        flags = termios.tcgetattr(self._descriptor)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON and flags & termios.ISIG)

    async def _read(self) -> bool:
        await anyio.wait_readable(self._descriptor)
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError:
            return False
        text = data.decode("utf-8", "replace")
        self.written += text
        self.rows.write(text)
        return bool(data)


@asynccontextmanager
async def at_terminal(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, *, columns: int = 100
) -> AsyncGenerator[Terminal]:
    """Run a program at a terminal. Kills it if it does not end in time."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = await anyio.open_process(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process, columns)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
        os.close(ours)
