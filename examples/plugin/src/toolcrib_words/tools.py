"""Count words, lines and characters of a text or of a text file."""

from pathlib import Path
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib import InvalidRequest, tool

MAX_BYTES = 10 * 1024 * 1024


class Counts(TypedDict):
    """The counts of a text."""

    words: int
    lines: int
    characters: int


@tool(read_only=True)
def count_text(text: Annotated[str, "What to count."]) -> Counts:
    """Count the words, lines and characters of a text. Use it when asked how long something is."""
    return {"words": len(text.split()), "lines": len(text.splitlines()), "characters": len(text)}


@tool(read_only=True)
def count_file(path: Annotated[str, "The full path of a UTF-8 file, up to 10 MiB."]) -> Counts:
    """Count the words, lines and characters of a text file. Use it instead of reading a long file yourself."""
    file = Path(path)
    if not file.is_absolute() or not file.is_file() or file.stat().st_size > MAX_BYTES:
        raise InvalidRequest("request.invalid", f"{path} is no file of up to 10 MiB.", "Pass the full path of a file.")
    return count_text(file.read_text(encoding="utf-8", errors="replace"))
