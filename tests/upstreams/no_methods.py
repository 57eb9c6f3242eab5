"""Speaks JSON-RPC and knows no method."""

from upstreams.protocol import messages, refuse


def main() -> None:
    """Refuse everything."""
    for message in messages():
        if "id" in message:
            refuse(message)


if __name__ == "__main__":
    main()
