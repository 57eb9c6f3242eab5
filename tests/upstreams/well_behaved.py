"""A well-behaved server. Its tools show the parts of the protocol: echo, progress, a question back, cancellation."""

import os
import sys
from pathlib import Path

from upstreams.protocol import INITIALIZED, Message, arguments, messages, refuse, reply, send, text_reply


def surroundings() -> Message:
    """Return what a process can observe of its start."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "env": dict(os.environ),
        "cwd": str(Path.cwd()),
        "umask": umask,
        "files": sorted(int(each.name) for each in Path("/dev/fd").iterdir()),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "pid": os.getpid(),
        "argv": sys.argv[1:],
    }


def call(request: Message, waiting: dict[object, Message]) -> None:
    """Run a tool."""
    match request["params"]["name"]:
        case "echo":
            reply(
                request,
                {"content": [], "structuredContent": arguments(request), "futureMember": [1], "_meta": {"a": 1}},
            )
        case "count":
            token = request["params"]["_meta"]["progressToken"]
            for number in range(1, 4):
                params = {"progressToken": token, "progress": number, "total": 3, "message": f"at {number}"}
                send({"method": "notifications/progress", "params": params})
            text_reply(request, "counted")
        case "ask":
            waiting["question"] = request
            send({"id": "question", "method": "elicitation/create", "params": {"message": "Why?"}})
        case "wait":
            waiting[request["id"]] = request
            send({"method": "notifications/waiting"})
        case "surroundings":
            reply(request, surroundings())
        case "release":  # answer a cancelled call, too late
            for each in waiting.values():
                text_reply(each, "late")
            text_reply(request, "released")
        case _:
            refuse(request, -32602, "Unknown tool")


def main() -> None:
    """Serve until the input ends."""
    waiting: dict[object, Message] = {}
    for message in messages():
        method = message.get("method")
        if method == "initialize":
            reply(message, INITIALIZED)
        elif method == "tools/call":
            call(message, waiting)
        elif method == "notifications/cancelled":
            send({"method": "notifications/heard", "params": message["params"]})
        elif method is None:
            asked = waiting.pop(message["id"])
            reply(
                asked, {"content": [], "structuredContent": {key: message[key] for key in message if key != "jsonrpc"}}
            )
        elif "id" in message:
            refuse(message)


if __name__ == "__main__":
    main()
