"""Renders arguments for a person to judge: complete, with nothing that could hide or reorder text.

The text is JSON with sorted names in which every invisible character is escaped. JSON doubles the backslashes of the
arguments, so a `\\u{…}` or `\\{…}` in it always comes from here, and the same text never represents two values. Long
runs of blanks are counted instead of drawn, since they push the rest out of sight. Nothing is ever truncated.

Every argument has its size. A page collapses long ones to stay readable; `digest` identifies the value a person has
opened. A path that resolves to another one gets a remark with the real path.

Must never change what is sent to the tool.
"""

import re
import unicodedata
from dataclasses import dataclass

import orjson

from toolcrib.gate.policy.paths import LEXICAL, Files, is_path_name, looks_like_path, real_path
from toolcrib.model.json import Json, JsonObject, digest, dumps, is_array, is_object
from toolcrib.model.text import is_unseen, visible

LONGEST_RUN = 16
"""Consecutive blanks that are drawn as they are."""
LONGEST_OPEN = 600
MOST_LINES = 16
"""Characters and lines of an argument that a page shows without collapsing it."""
_MOST_NOTES = 20
_MARKS_KEPT = 2
_MORE = f"{{{LONGEST_RUN + 1},}}"
_RUNS = re.compile(rf" {_MORE}|(?:\\n){_MORE}|(?:\\t){_MORE}|(?:\\r){_MORE}|\\.")
"""Runs of one blank in JSON text. Other escapes are skipped, so that `\\\\n` is not taken for a line break."""
_SPACES = re.compile(rf" {_MORE}")
_BREAKS = re.compile(r"\\\\|\\n")
"""Line breaks in JSON text. A doubled backslash is skipped."""
_BLANK_RUN = re.compile(rf"\s{_MORE}")
_UNPLAIN = re.compile(r"[^\n -~]+")
_BLANKS = {" ": "spaces", "n": "line breaks", "t": "tabs", "r": "returns"}
_LOOKALIKE = re.compile(r"[\u0370-\u03ff\u0400-\u052f\u0531-\u0587\u13a0-\u13ff\u2c80-\u2cff\uff21-\uff5a]")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Remark:
    """A hint for a person who judges a value: the JSON pointer of the value, and the message."""

    pointer: str
    message: str

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {"pointer": self.pointer, "message": self.message}


_MASKED = Remark("", "secrets are masked as ***; the call is made with the real values")


@dataclass(frozen=True, slots=True)
class ShownArgument:
    """One argument as displayed: its text, its size, and whether a page collapses it."""

    name: str
    text: str
    characters: int
    collapsed: bool
    digest: str

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {
            "name": visible(self.name),
            "text": self.text,
            "characters": self.characters,
            "collapsed": self.collapsed,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class DisplayedArguments:
    """Arguments as displayed: the full text, the number of invisible characters, and remarks.

    `arguments` holds the same content per argument.
    """

    text: str
    hidden: int
    characters: int
    remarks: tuple[Remark, ...]
    arguments: tuple[ShownArgument, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        remarks = [remark.to_json() for remark in self.remarks]
        arguments = [argument.to_json() for argument in self.arguments]
        shape: JsonObject = {"text": self.text, "hidden": self.hidden, "characters": self.characters}
        return shape | {"remarks": remarks, "arguments": arguments}


def show(
    arguments: Json, cwd: str | None = None, files: Files = LEXICAL, *, is_masked: bool = False
) -> DisplayedArguments:
    """Return the arguments of a call for a person to judge.

    Relative paths start at `cwd`. `is_masked` means that secrets in the arguments are already masked.
    """
    plain, text = _written_whole(arguments)
    walk = _Walk(cwd, files)
    walk.value("", arguments)
    members = arguments if is_object(arguments) else {}
    each = tuple(_argument(name, members[name]) for name in sorted(members))
    remarks = (*walk.remarks, _MASKED) if is_masked else tuple(walk.remarks)
    return DisplayedArguments(text, walk.hidden, len(plain), remarks, each)


def editable(arguments: Json) -> str:
    """Return the arguments as JSON to edit. Invisible characters are escaped and keep their meaning."""
    plain = dumps(arguments, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    return "\n".join(_editable_line(line) for line in plain.split("\n"))


def _editable_line(line: str) -> str:
    content = line.lstrip(" ")
    margin = line[: len(line) - len(content)]
    spaced = _SPACES.sub(lambda run: "\\u0020" * len(run[0]), content)
    return margin + _UNPLAIN.sub(lambda run: "".join(map(_json_escape, run[0])), spaced)


def _json_escape(character: str) -> str:
    if not _is_unseen(character) and not unicodedata.category(character).startswith("M"):
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _argument(name: str, value: Json) -> ShownArgument:
    plain, text = _written_whole(value)
    characters = len(value) if isinstance(value, str) else len(plain)
    lines = _BREAKS.sub(lambda found: found[0] + "\n" if found[0] == "\\n" else found[0], text)
    collapsed = len(text) > LONGEST_OPEN or lines.count("\n") >= MOST_LINES
    return ShownArgument(name, lines, characters, collapsed, digest([name, value])[:16])


def _written_whole(value: Json) -> tuple[str, str]:
    """Return the JSON of a value, plain and with every invisible character escaped."""
    plain = dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    return plain, "\n".join(_line(line) for line in plain.split("\n"))


def _line(line: str) -> str:
    """Return one line of JSON. Its own indentation is kept at any depth."""
    content = line.lstrip(" ")
    margin = line[: len(line) - len(content)]
    return margin + _UNPLAIN.sub(_escape_run, _RUNS.sub(_count_blanks, content))


def _count_blanks(run: re.Match[str]) -> str:
    text = run[0]
    if len(text) <= LONGEST_RUN:
        return text
    blank = text[-1]
    return f"\\{{{text.count(blank)} {_BLANKS[blank]}}}"


def _escape_run(run: re.Match[str]) -> str:
    """Escape invisible characters, and combining marks that pile up on one letter."""
    written: list[str] = []
    marks = 0
    for each in run[0]:
        marks = marks + 1 if unicodedata.category(each).startswith("M") else 0
        written.append(f"\\u{{{ord(each):x}}}" if marks > _MARKS_KEPT or _is_unseen(each) else each)
    return "".join(written)


class _Walk:
    """Counts invisible characters and collects remarks, value by value."""

    def __init__(self, cwd: str | None, files: Files) -> None:
        self.hidden = 0
        self.remarks: list[Remark] = []
        self._cwd = cwd
        self._files = files

    def value(self, pointer: str, value: Json) -> None:
        if isinstance(value, str):
            self._text(pointer, value)
            self._path(pointer, value)
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

    def _path(self, pointer: str, text: str) -> None:
        name = pointer.rstrip("0123456789").rstrip("/").rpartition("/")[2]
        if len(self.remarks) < _MOST_NOTES and (is_path_name(name) or looks_like_path(text)):
            real = real_path(text, self._cwd, self._files)
            if real is not None:
                self._remark(pointer, f"the real path is {visible(real)}")

    def _remark(self, pointer: str, message: str) -> None:
        if len(self.remarks) < _MOST_NOTES:
            self.remarks.append(Remark(visible(pointer), message))


def _is_unseen(character: str) -> bool:
    """Return whether a character is drawn as nothing or as a space. JSON itself escapes tabs and returns."""
    return character not in "\t\r" and is_unseen(character)


def _is_mixed(word: str) -> bool:
    return _LATIN.search(word) is not None and _LOOKALIKE.search(word) is not None
