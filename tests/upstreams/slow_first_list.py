"""Answers the first `tools/list` late, after creating the file of the first argument, and all others at once."""

import sys
import threading
from pathlib import Path

from upstreams.protocol import Message, refuse, reply, requests

LATE = 0.7
TOOLS: Message = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


def main(asked: Path) -> None:
    """Serve until the input ends."""
    for request in requests():
        if request["method"] == "ping":
            reply(request, {})
        elif request["method"] != "tools/list":
            refuse(request)
        elif asked.exists():
            reply(request, TOOLS)
        else:
            threading.Timer(LATE, reply, (request, TOOLS)).start()
            asked.touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
