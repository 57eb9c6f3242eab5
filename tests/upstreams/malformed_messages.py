"""Sends messages in unusual ways, or lines that are no messages. The text of the call selects the kind."""

import json
import sys

from upstreams.protocol import Message, arguments, requests, text_reply, write

ODD: dict[str, tuple[bytes, bytes]] = {
    # before the reply, after it, and instead of its line feed
    "banner": (b"Starting up... ", b"\n"),
    "progress bar": (b" 10%\r 50%\r100%\r", b"\n"),
    "colours": (b"\x1b[32mready\x1b[0m\n", b"\n"),
    "crlf": (b"", b"\r\n"),
    "bom": (b"\xef\xbb\xbf", b"\n"),
    "blank lines": (b"\n\n\n", b"\n\n"),
    "few lines": (b"debug: one\ndebug: two\n[]\n3\n", b"\n"),
}
WORDS: dict[str, bytes] = {
    "bad utf-8": b"caf\xe9 \xff\xfe",
    "half a pair": b"\\ud83d and \\udc00, \\ud83d\\ude00, \\\\ud800",
    "separators": "a\u2028b\u0085c".encode(),
}
BROKEN: dict[str, bytes] = {
    "nul": b'{"text":"a\x00b"}',
    "nan": b'{"text":NaN}',
    "deep": b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


def answer(request: Message) -> None:
    """Answer in the selected way."""
    kind = arguments(request)["kind"]
    head = f'{{"jsonrpc":"2.0","id":{request["id"]},"result":'.encode()
    plain = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"text": kind}}).encode()
    if kind in ODD:
        before, after = ODD[kind]
        write(before + plain + after)
    elif kind in WORDS:
        write(head + b'{"text":"' + WORDS[kind] + b'"}}\n')
    elif kind in BROKEN:
        write(head + BROKEN[kind] + b"}\n")
    elif kind == "in pieces":
        for at in range(len(plain)):
            write(plain[at : at + 1])
        write(b"\n")
    elif kind == "batch":
        write(b"[" + plain + b"]\n")
    elif kind == "many lines":
        write(b"debug\n" * 1_001)
    elif kind == "much":
        write((b"x" * 1023 + b"\n") * 500 + b"\n" * 600_000)
    else:
        text_reply(request, kind)


def main() -> None:
    """Serve."""
    for request in requests():
        answer(request)


if __name__ == "__main__":
    sys.exit(main())
