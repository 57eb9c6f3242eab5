"""Never answers from a step on: discover, initialize or call. `modern` answers the second discovery."""

import sys

from upstreams.protocol import INITIALIZED, Message, messages, refuse, reply

DISCOVERED: Message = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}


def main(step: str) -> None:
    """Serve until the step."""
    discovery: Message | None = None
    for message in messages():
        method = message.get("method")
        if method == "server/discover":
            discovery = message
            if step != "discover" and step != "modern":
                refuse(message)
        elif method == "initialize" and step == "modern":
            assert discovery is not None
            reply(discovery, DISCOVERED)
            refuse(message, -32600, "The first request chose the modern era.")
        elif method == "initialize" and step != "initialize":
            reply(message, INITIALIZED)


if __name__ == "__main__":
    main(sys.argv[1])
