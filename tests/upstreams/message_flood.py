"""Floods the client, then answers. The call selects the kind of message.

`notifications` (the same notification), `messages` or `requests` on standard output, `stderr` on standard error.

"""

import sys

from upstreams.protocol import Message, arguments, messages, requests, send, text_reply, write

MESSAGE = b'{"jsonrpc":"2.0","method":"notifications/message"}\n'
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'


def answer(request: Message) -> None:
    """Flood, then answer."""
    heard = messages()
    count = arguments(request).get("count", 0)
    match arguments(request)["kind"]:
        case "notifications":
            for _ in range(count // 1_000):
                write(CHANGED * 1_000)
        case "messages":
            for _ in range(count // 1_000):
                write(MESSAGE * 1_000)
        case "requests":
            for number in range(count):
                write(f'{{"jsonrpc":"2.0","id":{number},"method":"roots/list"}}\n'.encode())
            send({"id": "end", "method": "ping"})
            refused = sum(
                "error" in answer for answer in iter(lambda: next(heard), {"jsonrpc": "2.0", "id": "end", "result": {}})
            )
            text_reply(request, str(refused))
            return
        case "stderr":
            for _ in range(count):
                sys.stderr.buffer.write(b"e" * 1023 + b"\n")
            sys.stderr.write("the very last line\n")
            sys.stderr.flush()
        case _:
            pass
    text_reply(request, "flooded")


def main() -> None:
    """Serve."""
    for request in requests():
        answer(request)


if __name__ == "__main__":
    sys.exit(main())
