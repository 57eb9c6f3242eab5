"""The worker process that parses source files: `python -P -m toolcrib.agents.symbols.worker`.

Each request on standard input is a line of JSON, `{"root", "files": [[path, language], …]}`. The answer has the same
order and is prefixed with its length in four bytes.

Must never answer with a file outside the root, nor write or run anything.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from toolcrib.agents.symbols.entries import SourceFile, to_wire
from toolcrib.agents.symbols.extract import read_source
from toolcrib.agents.symbols.files import read_bytes

_NICE: Final = 5


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until standard input is closed."""
    for line in requests:
        asked = orjson.loads(line)
        written = orjson.dumps([to_wire(read_file(Path(asked["root"]), *each)) for each in asked["files"]])
        answers.write(len(written).to_bytes(4, "big") + written)
        answers.flush()


def read_file(root: Path, file: str, language: str) -> SourceFile:
    """Parse one file; errors are part of the answer."""
    try:
        return read_source(file, language, read_bytes(root / file))
    except Exception as error:  # noqa: BLE001 boundary: one unreadable file must not fail the request
        return SourceFile("", failed=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    with contextlib.suppress(OSError, AttributeError):  # the crib's own process has priority
        os.nice(_NICE)
    main(sys.stdin.buffer, sys.stdout.buffer)
