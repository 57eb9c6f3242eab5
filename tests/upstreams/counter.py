"""Counts its calls. While it runs, a file named after its process id is in the folder of the first argument.

`count` reports progress, then returns the process id and the number of calls. `wait` never answers.

"""

import os
import sys
from pathlib import Path

from upstreams.protocol import Message, refuse, reply, requests, send, text_reply

NO_ARGUMENTS: Message = {"type": "object", "properties": {}}


def serve() -> None:
    """Answer requests until the input ends."""
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
                    send({"method": "notifications/progress", "params": {"progressToken": token, "progress": calls}})
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
