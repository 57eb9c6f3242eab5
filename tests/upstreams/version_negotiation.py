"""Refuses the first request of its era with -32022 and its versions, and accepts the second request.

The first argument is the era: `modern` or `legacy`.

"""

import sys

from upstreams.modern import DISCOVERED
from upstreams.protocol import INITIALIZED, messages, refuse, reply, send

OLDER = "2025-03-26"


def main(era: str) -> None:
    """Run the handshake."""
    method, versions = ("server/discover", ["2026-07-28"]) if era == "modern" else ("initialize", [OLDER])
    has_refused = False
    for message in messages():
        if message.get("method") == method and not has_refused:
            has_refused = True
            error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": versions}}
            send({"id": message["id"], "error": error})
        elif message.get("method") == method and era == "modern":
            reply(message, DISCOVERED)
        elif message.get("method") == method and message["params"]["protocolVersion"] == OLDER:
            reply(message, {**INITIALIZED, "protocolVersion": OLDER})
        elif "id" in message:
            refuse(message)


if __name__ == "__main__":
    main(sys.argv[1])
