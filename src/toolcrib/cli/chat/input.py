"""Keyboard input with basic line editing.

The terminal is in raw mode without signals: Ctrl-C is a key, so it reaches only the chat and not its child processes.
Pasted text is inserted as it is; its line breaks do not submit.

Must never leave the terminal in a changed state.
"""

import codecs
import os
import re
import signal
import termios
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import anyio

Mode: TypeAlias = list[Any]
"""Terminal attributes as `termios` returns them."""
Command = Literal["interrupt", "leave", "suspend"]

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE: Final = re.compile("\x1b\\[200~(.*?)\x1b\\[201~", re.DOTALL)
_KEY: Final = re.compile("\x1b\\[[0-9;]*[ -/]*[@-~]|\x1bO.|\x1b[^\\[O\x1b]|[^\x1b]", re.DOTALL)
_PRESS: Final = re.compile(f"{_KEY.pattern}|\x1b", re.DOTALL)
_BEGUN: Final = re.compile("\x1b(\\[[0-9;]*[ -/]*|O)?")
"""An incomplete escape sequence."""
_MOST_REMEMBERED: Final = 1000
_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class Entered:
    """A submitted line."""

    text: str


Action: TypeAlias = Entered | Command


class Editor:
    """The line being edited. `text` is its content, `cursor` the insertion position."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""
        self._history: list[str] = []
        self._place = 0
        self._draft = ""
        self._keys: dict[str, Callable[[], Action | None]] = {
            "\r": self._enter,
            "\n": self._enter,
            "\x7f": lambda: self._cut(self.cursor - 1, self.cursor),
            "\x08": lambda: self._cut(self.cursor - 1, self.cursor),
            "\x1b[3~": lambda: self._cut(self.cursor, self.cursor + 1),
            "\x04": self._end_or_cut,
            "\x03": lambda: "interrupt",
            "\x1a": lambda: "suspend",
            "\x01": lambda: self._go(0),
            "\x05": lambda: self._go(len(self.text)),
            "\x02": lambda: self._go(self.cursor - 1),
            "\x06": lambda: self._go(self.cursor + 1),
            "\x0b": lambda: self._cut(self.cursor, len(self.text)),
            "\x15": lambda: self._cut(0, self.cursor),
            "\x17": lambda: self._cut(self._word_before(), self.cursor),
            "\x1b\x7f": lambda: self._cut(self._word_before(), self.cursor),
            "\x1bb": lambda: self._go(self._word_before()),
            "\x1bf": lambda: self._go(self._word_after()),
            "\x1b[1;5D": lambda: self._go(self._word_before()),
            "\x1b[1;5C": lambda: self._go(self._word_after()),
            "\x10": lambda: self._recall(-1),
            "\x0e": lambda: self._recall(1),
            **_arrows("A", lambda: self._recall(-1)),
            **_arrows("B", lambda: self._recall(1)),
            **_arrows("C", lambda: self._go(self.cursor + 1)),
            **_arrows("D", lambda: self._go(self.cursor - 1)),
            **_arrows("H", lambda: self._go(0)),
            **_arrows("F", lambda: self._go(len(self.text))),
            "\x1b[1~": lambda: self._go(0),
            "\x1b[4~": lambda: self._go(len(self.text)),
        }

    def feed(self, keys: bytes) -> Iterator[Action]:
        """Process input; yield each action before later keys are processed."""
        self._pending += self._decode(keys)
        while self._pending:
            if paste := _PASTE.match(self._pending):
                self._pending = self._pending[paste.end() :]
                self._insert(paste[1].replace("\r\n", "\n").replace("\r", "\n"))
            elif self._pending.startswith("\x1b[200~"):
                return  # incomplete paste
            elif key := _KEY.match(self._pending):
                self._pending = self._pending[key.end() :]
                if (action := self._press(key[0])) is not None:
                    yield action
            elif _BEGUN.fullmatch(self._pending):
                return
            else:
                self._pending = self._pending[1:]  # a single escape key has no meaning

    def put(self, text: str) -> None:
        """Replace the line."""
        self.text, self.cursor = text, len(text)
        self._place = len(self._history)

    def _press(self, key: str) -> Action | None:
        if key in self._keys:
            return self._keys[key]()
        if key >= " " and key[0] != "\x1b":
            self._insert(key)
        return None

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _enter(self) -> Action:
        text = self.text
        if text.strip() and self._history[-1:] != [text]:
            self._history = [*self._history, text][-_MOST_REMEMBERED:]
        self.put("")
        return Entered(text)

    def _end_or_cut(self) -> Action | None:
        return "leave" if not self.text else self._cut(self.cursor, self.cursor + 1)

    def _cut(self, start: int, end: int) -> None:
        start = max(start, 0)
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _go(self, place: int) -> None:
        self.cursor = min(max(place, 0), len(self.text))

    def _word_before(self) -> int:
        before = self.text[: self.cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _word_after(self) -> int:
        found = re.compile(r"\s*\S*").match(self.text, self.cursor)
        return found.end() if found else self.cursor

    def _recall(self, step: int) -> None:
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return
        if self._place == len(self._history):
            self._draft = self.text
        self.text = self._draft if place == len(self._history) else self._history[place]
        self.cursor, self._place = len(self.text), place


def _arrows(final: str, does: Callable[[], None]) -> dict[str, Callable[[], Action | None]]:
    """Return both sequences that terminals send for a cursor key."""
    return {f"\x1b[{final}": does, f"\x1bO{final}": does}


def key_presses(data: bytes) -> list[str]:
    """Return the keys of one read; an escape that nothing follows is a key."""
    return _PRESS.findall(data.decode("utf-8", "replace"))


class Keys:
    """The keyboard of the terminal on this descriptor. `write` sends control sequences."""

    def __init__(self, descriptor: int, write: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._write = write
        self._before: Mode = []

    @contextmanager
    def taken(self) -> Generator[None]:
        """Switch to raw mode without echo; restore the terminal on exit."""
        self._before = termios.tcgetattr(self._descriptor)
        self._take()
        try:
            yield
        finally:
            self._give_back()

    def suspend(self) -> None:
        """Suspend the process until the shell resumes it, like Ctrl-Z."""
        self._give_back()
        os.kill(0, signal.SIGTSTP)
        self._take()

    def _take(self) -> None:
        mode = termios.tcgetattr(self._descriptor)
        mode[0] &= ~(termios.ICRNL | termios.IXON)
        mode[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, mode)
        self._write(_PASTE_ON)

    def _give_back(self) -> None:
        self._write(_PASTE_OFF)
        # Waiting for keys made the descriptor non-blocking, for every program at this terminal.
        os.set_blocking(self._descriptor, True)
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    async def read(self) -> bytes:
        """Return the next input; empty if the terminal is gone."""
        await anyio.wait_readable(self._descriptor)
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError:
            return b""
