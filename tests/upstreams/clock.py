"""A server with one tool that returns the time. Replaces the registry server of the README in tests."""

from datetime import UTC, datetime

from upstreams.protocol import Message, messages, refuse, reply, text_reply

TOOL: Message = {
    "name": "get_current_time",
    "description": "The current time.",
    "inputSchema": {"type": "object", "properties": {}},
}


def main() -> None:
    """Serve until the input ends."""
    for message in messages():
        match message.get("method"):
            case "initialize":
                info: Message = {"name": "clock", "version": "1"}
                said: Message = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                reply(message, said)
            case "tools/list":
                reply(message, {"tools": [TOOL]})
            case "tools/call":
                text_reply(message, datetime.now(UTC).isoformat())
            case "ping":
                reply(message, {})
            case _:
                if "id" in message:
                    refuse(message, -32601, "Method not found")


if __name__ == "__main__":
    main()
