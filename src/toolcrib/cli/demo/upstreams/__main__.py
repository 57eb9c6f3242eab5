"""Runs the named server on the files of the given directory."""

import sys
from pathlib import Path

from toolcrib.cli.demo.upstreams.notes import notes
from toolcrib.cli.demo.upstreams.tracker import tracker
from toolcrib.cli.demo.upstreams.wire import serve

SERVERS = {"notes": notes, "tracker": tracker}


def main(name: str, place: str) -> None:
    """Serve until the client disconnects."""
    serve(name, SERVERS[name](Path(place)))


if __name__ == "__main__":
    main(*sys.argv[1:])
