"""Answers every request with "method not found"."""

from upstreams.protocol import messages, refuse


def main() -> None:
    """Refuse every request."""
    for message in messages():
        if "id" in message:
            refuse(message)


if __name__ == "__main__":
    main()
