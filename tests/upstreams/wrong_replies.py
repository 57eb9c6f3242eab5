"""Answers with wrong ids or invalid replies before the right answer."""

import sys

from upstreams.protocol import Message, arguments, reply, requests, send, write

LIE: Message = {"result": {"lie": True}}
BEFORE: dict[str, tuple[Message, ...]] = {
    "foreign": ({"id": 10_000, **LIE}, {"id": "other", **LIE}),
    "null": ({"id": None, **LIE}, {"id": None, "error": {"code": -32700, "message": "Parse error"}}),
    "no id": (LIE,),
    "odd id": ({"id": [1], **LIE}, {"id": {"a": 1}, **LIE}),
    "true": ({"id": True, **LIE},),
    "odd method": ({"method": 3}, {"method": None}, {"id": [], "method": "ping"}),
}
OWN: dict[str, Message] = {
    "duplicate": {"result": {"truth": True}},
    "both": {**LIE, "error": {"code": 1, "message": "lie"}},
    "neither": {},
}
INSTEAD: dict[str, Message] = {
    "no object": {"result": "just text"},
    "odd error": {"error": "broken"},
    "error": {"error": {"code": -32042, "message": "Sign in", "data": {"url": "here"}}},
}


def answer(request: Message) -> None:
    """Send the wrong replies, then the right one."""
    number, kind = request["id"], arguments(request)["kind"]
    if kind in INSTEAD:
        send({"id": number, **INSTEAD[kind]})
        return
    for message in BEFORE.get(kind, ()):
        send(message)
    if kind in OWN:
        send({"id": number, **OWN[kind]})
    elif kind == "string":
        send({"id": str(number), **LIE})
    elif kind == "float":
        write(f'{{"jsonrpc":"2.0","id":{number}.0,"result":{{"lie":true}}}}\n'.encode())
    reply(request, {"truth": True})


def main() -> None:
    """Serve."""
    for request in requests():
        answer(request)


if __name__ == "__main__":
    sys.exit(main())
