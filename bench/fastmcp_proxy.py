"""A FastMCP proxy with its fastest settings before one upstream, run by `.tools/peers`.

`fastmcp_proxy.py URL` or `fastmcp_proxy.py COMMAND ARG…`: stateless, JSON answers, httptools and uvloop. It speaks to
the upstream in the era of its client. It prints one ready line, as `serve --json` does. FastMCP is imported by name,
because it is not installed where this file is type-checked.
"""

import json
import os
import socket
import sys
from importlib import import_module

import uvicorn


def main() -> None:
    """Listen, print the ready line, and serve."""
    target, *words = sys.argv[1:]
    if not target.startswith("http"):
        transports = import_module("fastmcp.client.transports")
        target = transports.StdioTransport(command=target, args=words, env=dict(os.environ))
    proxy = import_module("fastmcp.server").create_proxy(target)
    app = proxy.http_app(path="/mcp", json_response=True, stateless_http=True)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(json.dumps({"event": "ready", "mcp": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="error")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
