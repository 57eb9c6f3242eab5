"""Count words, lines and characters of a text or of a text file."""

from pathlib import Path
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib import InvalidRequest, tool

LARGEST = 10 * 1024 * 1024


class Counted(TypedDict):
    """What a text has."""

    words: int
    lines: int
    characters: int


@tool(read_only=True)
def count_text(text: Annotated[str, "What to count."]) -> Counted:
    """Count the words, lines and characters of a text. Use it when asked how long something is."""
    return {"words": len(text.split()), "lines": len(text.splitlines()), "characters": len(text)}


@tool(read_only=True)
def count_file(path: Annotated[str, "The full path of a UTF-8 file, up to 10 MiB."]) -> Counted:
    """Count the words, lines and characters of a text file. Use it instead of reading a long file yourself."""
    file = Path(path)
    if not file.is_absolute() or not file.is_file() or file.stat().st_size > LARGEST:
        raise InvalidRequest("request.invalid", f"{path} is not a file that can be counted.", "Name another one.")
    return count_text(file.read_text(encoding="utf-8", errors="replace"))
