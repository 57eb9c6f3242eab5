"""The terminal of a chat: text scrolls above, the last row is the input.

Text is wrapped here, not by the terminal: untrusted text is indented in every row, so that none can imitate our lines.
The input row is removed and redrawn around all output in one write, so that nothing flickers and typed keys never mix
with the text. With colours, the agent's Markdown is styled.

Must never write text that did not pass `safe`.
"""

import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final

from toolcrib.cli.chat.markdown import MarkdownStyler
from toolcrib.cli.chat.view import Piece, Tone, ViewLine
from toolcrib.cli.output import safe, width

_TOKENS: Final = re.compile(r"\n| +|[^\n ]+")
_INDENT: Final = 2
_NARROWEST: Final = 20
_TAB: Final = "    "
_CLEAR_ROW: Final = "\r\x1b[K"
_STYLES: Final[dict[Tone, str]] = {
    "plain": "",
    "faint": "\x1b[2m",
    "strong": "\x1b[1m",
    "emphasis": "\x1b[3m",
    "code": "\x1b[36m",
}
_RESET: Final = "\x1b[0m"


class Screen:
    """`columns` returns the current width of the terminal."""

    def __init__(self, write: Callable[[str], None], columns: Callable[[], int], *, colours: bool) -> None:
        self._write = write
        self._columns = columns
        self._colours = colours
        self._column = 0
        self._word = ""
        self._is_begun = False
        self._label = self._text = ""
        self._cursor = 0
        self._has_row = False
        self._markdown = MarkdownStyler()

    def show(self, pieces: Iterable[Piece]) -> None:
        """Print pieces above the input row."""
        away = self._erase()
        made = "".join(self._render(part) for piece in pieces for part in self._style(piece))
        if made:
            self._write(away + made + self._below())

    def ask(self, label: str, text: str = "", cursor: int = 0) -> None:
        """Draw the input row: label, typed text and cursor."""
        self._label, self._text, self._cursor = safe(label), text, cursor
        if self._has_row:
            self._write(self._row())
        else:
            self._has_row = True
            self._write(self._below())

    @contextmanager
    def aside(self) -> Generator[None]:
        """Hide the input row while other code prints whole lines."""
        self._write(self._erase() + self._new_row())
        had_row, self._has_row = self._has_row, False
        try:
            yield
        finally:
            self._has_row = had_row
            self._write(self._below())

    def leave(self) -> None:
        """Remove the input row; later output starts on a new row."""
        self._write(self._erase() + self._new_row())
        self._has_row = False

    def _style(self, piece: Piece) -> Iterable[Piece]:
        """Return an agent's text with its Markdown as styles; without styles, the marks stay."""
        if isinstance(piece, ViewLine):
            self._markdown.reset()
        if not self._colours or isinstance(piece, ViewLine) or piece.tone != "plain":
            return (piece,)
        return self._markdown.feed(piece)

    def _render(self, piece: Piece) -> str:
        text = safe(piece.text).replace("\t", _TAB)
        if isinstance(piece, ViewLine):
            made = self._new_row() + "".join(self._own(line) for line in text.split("\n"))
        else:
            made = "".join(self._token(token, _INDENT) for token in _TOKENS.findall(text))
        style = _STYLES[piece.tone] if self._colours else ""
        return f"{style}{made}{_RESET}" if style and made else made

    def _own(self, line: str) -> str:
        """Return a line of our own; continuation rows are indented."""
        self._is_begun = True
        hanging = len(line) - len(line.lstrip(" ")) + _INDENT
        made = "".join(self._token(token, min(hanging, _NARROWEST // 2)) for token in _TOKENS.findall(line))
        return made + self._new_row()

    def _new_row(self) -> str:
        made = "\n" if self._is_begun else ""
        self._is_begun, self._column, self._word = False, 0, ""
        return made

    def _token(self, token: str, indent: int) -> str:
        if token == "\n":
            return self._new_row() or "\n"
        made = self._margin(indent)
        room = self._limit() - self._column
        if token[0] == " ":
            blank = token[:room]
            self._column += len(blank)
            self._word = ""
            return made + blank
        if width(token) <= room:
            self._column += width(token)
            self._word += token
            return made + token
        return made + self._wrap(token, indent)

    def _wrap(self, token: str, indent: int) -> str:
        """Return a word that does not fit into its row: moved to the next row, or broken."""
        begun = width(self._word)
        made = ""
        if begun + width(token) <= self._limit() - indent:
            if begun:
                made = f"\x1b[{begun}D\x1b[K"
            whole = self._word + token
            made += self._new_row() + self._margin(indent) + whole
            self._word = whole
            self._column += width(whole)
            return made
        if not begun and self._column > indent:
            made += self._new_row() + self._margin(indent)
        for character in token:
            if self._column + width(character) > self._limit():
                made += self._new_row() + self._margin(indent)
            made += character
            self._column += width(character)
        self._word = ""
        return made

    def _margin(self, indent: int) -> str:
        if self._is_begun:
            return ""
        self._is_begun, self._column = True, indent
        return " " * indent

    def _limit(self) -> int:
        """Return the usable width. The last column stays free, because terminals differ in wrapping there."""
        return max(self._columns(), _NARROWEST) - 1

    def _erase(self) -> str:
        if not self._has_row:
            return ""
        back = f"\x1b[A\x1b[{self._column}C" if self._column else "\x1b[A"
        return _CLEAR_ROW + (back if self._is_begun else "")

    def _below(self) -> str:
        return ("\n" if self._is_begun else "") + self._row() if self._has_row else ""

    def _row(self) -> str:
        """Return the input row: as much of the text as fits, and the cursor position."""
        cells = [_display(character) for character in self._text]
        room = max(self._limit() - width(self._label), 1)
        before = _fitting(reversed(cells[: self._cursor]), room)[::-1]
        after = _fitting(cells[self._cursor :], room - width("".join(before)))
        column = width(self._label) + width("".join(before))
        place = f"\r\x1b[{column}C" if column else "\r"
        return f"{_CLEAR_ROW}{self._label}{''.join(before)}{''.join(after)}{place}"


def _fitting(cells: Iterable[str], room: int) -> list[str]:
    fitting: list[str] = []
    for cell in cells:
        room -= width(cell)
        if room < 0:
            break
        fitting.append(cell)
    return fitting


def _display(character: str) -> str:
    """Return a character as displayed in the input row, where a line break is visible."""
    return {"\n": "\\n", "\t": " "}.get(character) or safe(character)
