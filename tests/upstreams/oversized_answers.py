"""Sends oversized answers: `line` ends its 50 MB with a line feed, `last` has its id at the end, `open` never ends.

`endless` writes forever without a line feed, and `fits` stays below the limit. `shapeless` writes neither a message nor
a line feed.

"""

import sys

from upstreams.protocol import Message, arguments, requests, text_reply, write

MEGABYTE = b"x" * (1 << 20)


def answer(request: Message) -> None:
    """Answer in the requested way."""
    kind, megabytes = arguments(request)["kind"], arguments(request).get("megabytes", 50)
    if kind == "echo":
        text_reply(request, "small")
        return
    head, tail = f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"text":"', '"}}\n'
    if kind.startswith("last"):
        head, tail = '{"result":{"text":"', f'"}},"jsonrpc":"2.0","id":{request["id"]}}}\n'
    write(head.encode() if kind != "shapeless" else b"")
    while kind == "endless":
        write(MEGABYTE)
    for _ in range(megabytes):
        write(MEGABYTE)
    write(tail.encode() if kind not in ("open", "last open", "shapeless") else b"")


def main() -> None:
    """Serve."""
    for request in requests():
        answer(request)


if __name__ == "__main__":
    sys.exit(main())
