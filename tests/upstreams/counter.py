"""Counts its calls, and writes the id of its process into the folder of its first word while it runs.

Its tools: `count` returns the process and the number of calls so far, after progress; `wait` does not answer.
"""

import os
import sys
from pathlib import Path

from upstreams.protocol import Message, refuse, reply, requests, say, text_reply

NO_ARGUMENTS: Message = {"type": "object", "properties": {}}


def serve() -> None:
    """Answer everything, until the input ends."""
    marker = Path(sys.argv[1]) / f"{os.getpid()}"
    marker.touch()
    calls = 0
    for request in requests():
        params = request.get("params", {})
        match request["method"], params.get("name"):
            case "tools/list", _:
                tools = [{"name": name, "description": name, "inputSchema": NO_ARGUMENTS} for name in ("count", "wait")]
                reply(request, {"tools": tools})
            case "tools/call", "count":
                calls += 1
                token = params.get("_meta", {}).get("progressToken")
                if token is not None:
                    say({"method": "notifications/progress", "params": {"progressToken": token, "progress": calls}})
                text_reply(request, f"{os.getpid()} {calls}")
            case "tools/call", "wait":
                (Path(sys.argv[1]) / "waiting").touch()
            case "ping", _:
                reply(request, {})
            case _:
                refuse(request)
    marker.unlink(missing_ok=True)


if __name__ == "__main__":
    serve()
