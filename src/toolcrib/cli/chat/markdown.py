"""Styles the Markdown of an agent's text while it streams in.

Headings, lists, quotations, code, bold and emphasis become styles, and their marks disappear. Only characters that may
begin a mark are held back until the next ones arrive, so nothing is ever drawn again. The rest stays as it is.

Pure. Must never drop text that is not a mark.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from toolcrib.cli.chat.view import Tone, ViewText

_BLOCK: Final = re.compile(r"( {0,12})(?:(#{1,6}) +|([-*+]) +|(>) ?|(`{3,}|~{3,})([^\n`]*)(?=\n))")
_MAYBE_BLOCK: Final = re.compile(r" {0,12}(?:#{0,6} *|[-*+]? *|> ?|(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^\n`]*)?)")
"""The beginning of a line that may become a mark."""
_INLINE: Final = re.compile(r"`+|\*{1,3}")
_Read: TypeAlias = tuple[int | None, list[tuple[str, Tone]]]
"""How many characters were read, and what they show; None if a mark may still be incomplete."""


class MarkdownStyler:
    """Turns pieces of text into styled pieces."""

    def __init__(self) -> None:
        self._pending = ""
        self.reset()

    def reset(self) -> None:
        """Begin a new text."""
        self._pending = ""
        self._fence = ""
        self._begin_line()

    def feed(self, piece: ViewText) -> Iterator[ViewText]:
        """Yield a piece of text with its styles."""
        text, self._pending = self._pending + piece.text, ""
        while text:
            taken, parts = self._line_start(text) if self._at_start else self._rest_of_line(text)
            yield from (replace(piece, text=part, tone=tone) for part, tone in parts if part)
            if taken is None:
                self._pending = text
                return
            text = text[taken:]

    def _begin_line(self) -> None:
        self._at_start = True
        self._is_heading = self._is_bold = self._is_emphasis = False
        self._code = ""
        self._before = " "

    def _line_start(self, text: str) -> _Read:
        """Read the margin and the mark of a block."""
        if _MAYBE_BLOCK.fullmatch(text):
            return None, []
        self._at_start = False
        block = _BLOCK.match(text)
        if block is None:
            return len(text) - len(text.lstrip(" ")), [(text[: len(text) - len(text.lstrip(" "))], "plain")]
        margin, heading, bullet, quotation, fence, language = block.groups()
        if fence:
            return self._toggle_fence(block.end() + 1, margin, fence, language)
        if self._fence:
            return len(margin), [(margin, "code")]
        self._is_heading = heading is not None
        mark = "• " if bullet else "│ " if quotation else ""
        return block.end(), [(margin + mark, "plain")]

    def _toggle_fence(self, end: int, margin: str, fence: str, language: str) -> _Read:
        if self._fence and not (fence.startswith(self._fence) and not language.strip()):
            return len(margin) + len(fence), [(margin + fence, "code")]
        shown: list[tuple[str, Tone]] = []
        if not self._fence and language.strip():
            shown = [(f"{margin}{language.strip()}\n", "faint")]
        self._fence = "" if self._fence else fence
        self._begin_line()
        return end, shown

    def _rest_of_line(self, text: str) -> _Read:
        if text[0] == "\n":
            self._begin_line()
            return 1, [("\n", "plain")]
        end = text.find("\n")
        line = text if end < 0 else text[:end]
        if self._fence:
            return len(line), [(line, "code")]
        mark = _INLINE.search(line)
        if mark is None:
            return self._plain(line)
        if mark.start():
            return self._plain(line[: mark.start()])
        if mark.end() == len(text):
            return None, []  # the mark may go on
        return self._mark(mark[0], text[mark.end()])

    def _plain(self, text: str) -> _Read:
        self._before = text[-1]
        return len(text), [(text, self._tone)]

    def _mark(self, mark: str, after: str) -> _Read:
        """Apply a mark, or show it where it has no meaning: in code, or between spaces."""
        if self._code or mark[0] == "`":
            if self._code and mark != self._code:
                return self._plain(mark)
            self._code = "" if self._code else mark
            return len(mark), []
        closes = not self._before.isspace() and (self._is_bold if len(mark) > 1 else self._is_emphasis)
        opens = not after.isspace() and not self._before.isalnum()
        if not closes and not opens:
            return self._plain(mark)
        if len(mark) > 1:
            self._is_bold = not closes
        if len(mark) != 2:
            self._is_emphasis = not closes
        return len(mark), []

    @property
    def _tone(self) -> Tone:
        if self._code:
            return "code"
        if self._is_heading or self._is_bold:
            return "strong"
        return "emphasis" if self._is_emphasis else "plain"
