"""Returns its arguments, structured and as text. Its schema contains an integer beyond 64 bits."""

import json
import sys

from upstreams.protocol import arguments, reply, requests

LARGEST = 10**30
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer", "maximum": LARGEST}}}


def main() -> None:
    """Serve."""
    for request in requests():
        if request["method"] == "tools/list":
            reply(request, {"tools": [{"name": "echo", "description": "Echo.", "inputSchema": SCHEMA}]})
        else:
            given = arguments(request)
            text = {"type": "text", "text": json.dumps(given)}
            reply(request, {"content": [text], "structuredContent": given})


if __name__ == "__main__":
    sys.exit(main())
