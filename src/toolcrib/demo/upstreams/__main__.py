"""Starts the server that is named, on the files at the place that is named."""

import sys
from pathlib import Path

from toolcrib.demo.upstreams.notes import notes
from toolcrib.demo.upstreams.tracker import tracker
from toolcrib.demo.upstreams.wire import serve

SERVERS = {"notes": notes, "tracker": tracker}


def main(name: str, place: str) -> None:
    """Serve until the client leaves."""
    serve(name, SERVERS[name](Path(place)))


if __name__ == "__main__":
    main(*sys.argv[1:])
