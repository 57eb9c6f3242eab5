"""Arguments as a person judges them: whole, with nothing in them that could hide, reorder or be obeyed.

The text is JSON with sorted names in which every unseen character is written out. Backslashes of the arguments are
doubled by JSON, so a `\\u{…}` or `\\{…}` in it is always a sign of ours: the same text never stands for two values.
Long runs of blanks are counted instead of drawn, since they push the rest out of sight. Nothing is ever cut.

Above: every door that shows a question. Below: `model.text`. It must never change what is sent to the tool.
"""

import re
import unicodedata
from dataclasses import dataclass

import orjson

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.text import is_hidden, visible

LONGEST_RUN = 16
"""Blanks in a row that are drawn as they are."""
_MOST_NOTES = 20
_MARKS_KEPT = 2
_MORE = f"{{{LONGEST_RUN + 1},}}"
_RUNS = re.compile(rf" {_MORE}|(?:\\n){_MORE}|(?:\\t){_MORE}|(?:\\r){_MORE}|\\.")
"""Runs of one blank in JSON text; other escapes are stepped over, so that `\\\\n` is not taken for a line break."""
_BLANK_RUN = re.compile(rf"\s{_MORE}")
_UNPLAIN = re.compile(r"[^\n -~]+")
_BLANKS = {" ": "spaces", "n": "line breaks", "t": "tabs", "r": "returns"}
_LOOKALIKE = re.compile(r"[\u0370-\u03ff\u0400-\u052f\u0531-\u0587\u13a0-\u13ff\u2c80-\u2cff\uff21-\uff5a]")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something a person should know before judging a value: which one (a JSON pointer), and what."""

    pointer: str
    message: str

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"pointer": self.pointer, "message": self.message}


@dataclass(frozen=True, slots=True)
class Shown:
    """Arguments to look at: the whole text, how many characters a screen would not have drawn, and remarks."""

    text: str
    hidden: int
    characters: int
    remarks: tuple[Remark, ...]

    def to_json(self) -> JsonObject:
        """The public shape."""
        remarks = [remark.to_json() for remark in self.remarks]
        return {"text": self.text, "hidden": self.hidden, "characters": self.characters, "remarks": remarks}


def show(arguments: Json) -> Shown:
    """The arguments of a call, for a person to judge."""
    plain = orjson.dumps(arguments, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    lines = (_line(line) for line in plain.split("\n"))
    walk = _Walk()
    walk.value("", arguments)
    return Shown("\n".join(lines), walk.hidden, len(plain), tuple(walk.remarks))


def _line(line: str) -> str:
    """One line of JSON; its own indentation stays, whatever its depth."""
    content = line.lstrip(" ")
    margin = line[: len(line) - len(content)]
    return margin + _UNPLAIN.sub(_written, _RUNS.sub(_counted, content))


def _counted(run: re.Match[str]) -> str:
    text = run[0]
    if len(text) <= LONGEST_RUN:
        return text
    blank = text[-1]
    return f"\\{{{text.count(blank)} {_BLANKS[blank]}}}"


def _written(run: re.Match[str]) -> str:
    """Foreign characters, the unseen among them written out, and so are marks that pile up on one letter."""
    written: list[str] = []
    marks = 0
    for each in run[0]:
        marks = marks + 1 if unicodedata.category(each).startswith("M") else 0
        written.append(f"\\u{{{ord(each):x}}}" if marks > _MARKS_KEPT or _is_unseen(each) else each)
    return "".join(written)


class _Walk:
    """Counts what is hidden and remarks on it, value by value."""

    def __init__(self) -> None:
        self.hidden = 0
        self.remarks: list[Remark] = []

    def value(self, pointer: str, value: Json) -> None:
        if isinstance(value, str):
            self._text(pointer, value)
        elif is_object(value):
            for name in sorted(value):
                below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
                self._text(below, name)
                self.value(below, value[name])
        elif is_array(value):
            for number, item in enumerate(value):
                self.value(f"{pointer}/{number}", item)

    def _text(self, pointer: str, text: str) -> None:
        if text.isascii() and text.isprintable() and len(text) <= LONGEST_RUN:
            return
        hidden = sum(_is_unseen(each) for run in _UNPLAIN.findall(text) for each in run)
        self.hidden += hidden
        if hidden:
            self._remark(pointer, f"{hidden} hidden characters" if hidden > 1 else "1 hidden character")
        longest = max(map(len, _BLANK_RUN.findall(text)), default=0)
        if longest:
            self._remark(pointer, f"a run of {longest} blanks")
        if _LOOKALIKE.search(text) and any(map(_is_mixed, _WORD.findall(text))):
            self._remark(pointer, "letters of different scripts that look alike")

    def _remark(self, pointer: str, message: str) -> None:
        if len(self.remarks) < _MOST_NOTES:
            self.remarks.append(Remark(visible(pointer), message))


def _is_unseen(character: str) -> bool:
    """Whether a screen draws nothing for it, or a space where there is none; JSON itself writes tabs and returns."""
    return character not in "\t\r" and (is_hidden(character) or unicodedata.category(character) == "Zs")


def _is_mixed(word: str) -> bool:
    return _LATIN.search(word) is not None and _LOOKALIKE.search(word) is not None
