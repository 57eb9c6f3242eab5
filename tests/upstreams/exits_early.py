"""Exits with code 3 at a step: start, discover, initialize, call, cancel; or `after`, right after answering a call.

`closes` closes its output at a call and keeps running. `unterminated` answers without a line feed and exits.

"""

import json
import os
import sys

from upstreams.protocol import INITIALIZED, Message, messages, refuse, reply, text_reply, write, write_error


def leave(step: str) -> None:
    """Write to standard error and exit."""
    write_error(f"I leave at {step}; token=hunter2")
    sys.exit(3)


def call(message: Message, step: str) -> None:
    """Answer or fail a call, depending on the step."""
    match step:
        case "call":
            leave(step)
        case "after":
            text_reply(message, "done")
            leave(step)
        case "closes":
            os.close(1)
        case "unterminated":
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"last": True}}).encode())
            leave(step)
        case _:
            pass


def main(step: str) -> None:
    """Serve until the step."""
    if step == "start":
        leave(step)
    for message in messages():
        method = message.get("method")
        if method in (step, f"server/{step}", f"notifications/{step}led"):
            leave(step)
        elif method == "initialize":
            reply(message, INITIALIZED)
        elif method == "tools/call":
            call(message, step)
        elif "id" in message:
            refuse(message)


if __name__ == "__main__":
    main(sys.argv[1])
