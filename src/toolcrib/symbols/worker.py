"""The process that reads source files: `python -P -m toolcrib.symbols.worker`, asked on its standard input.

A request is a line of JSON, `{"root", "files": [[path, language], …]}`; the answer, in the same order, comes after its
length in four bytes. Above: `parsing`, which starts it, and ends it if it takes too long. It must never answer with a
file that lies outside the root, nor write or run anything.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from toolcrib.symbols.entries import Source, to_wire
from toolcrib.symbols.extract import read_source
from toolcrib.symbols.files import read_bytes

_NICE: Final = 5


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until nothing more is asked."""
    for line in requests:
        asked = orjson.loads(line)
        written = orjson.dumps([to_wire(read_file(Path(asked["root"]), *each)) for each in asked["files"]])
        answers.write(len(written).to_bytes(4, "big") + written)
        answers.flush()


def read_file(root: Path, file: str, language: str) -> Source:
    """One file; whatever is wrong with it is part of the answer."""
    try:
        return read_source(file, language, read_bytes(root / file))
    except Exception as error:  # noqa: BLE001 boundary: one file that cannot be read is one file less
        return Source("", failed=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    with contextlib.suppress(OSError, AttributeError):  # whoever waits for the crib goes first
        os.nice(_NICE)
    main(sys.stdin.buffer, sys.stdout.buffer)
