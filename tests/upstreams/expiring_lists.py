"""A modern server whose lists expire: each listing has one more tool.

The first argument is the `ttlMs` of the list. With a second argument, it accepts `subscriptions/listen` but never
notifies.

"""

import sys

from upstreams.modern import DISCOVERED
from upstreams.protocol import messages, refuse, reply


def main(ttl: int, takes_listeners: bool) -> None:
    """Serve until the input ends."""
    listed = 0
    for message in messages():
        match message.get("method"):
            case "server/discover":
                reply(message, {**DISCOVERED, "capabilities": {"tools": {"listChanged": True}}})
            case "tools/list":
                listed += 1
                tools = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(listed)]
                reply(message, {"tools": tools, "ttlMs": ttl, "cacheScope": "private"})
            case "subscriptions/listen" if takes_listeners:
                pass
            case _ if "id" in message:
                refuse(message)
            case _:
                pass


if __name__ == "__main__":
    main(int(sys.argv[1]), len(sys.argv) > 2)
