"""The server's command line: `stdio`, or `http` on a free port of loopback, whose address is the one line it prints."""

import socket
import sys

from upstreams.everything import diagnostics
from upstreams.everything.server import event_store


def listen() -> None:
    """Serve over HTTP as the SDK's own command does; the event store and the short retry are for resuming streams."""
    import uvicorn  # only here: each conversation over stdio is a process of its own, and waits for its imports

    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    app = diagnostics.mcp.streamable_http_app(event_store=event_store, retry_interval=100)
    # Not httptools, which leaves blanks at the end of header values for the SDK to stumble over.
    config = uvicorn.Config(app, http="h11", log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            diagnostics.mcp.run("stdio")
        case ["http"]:
            listen()
        case _:
            sys.exit("stdio or http")
