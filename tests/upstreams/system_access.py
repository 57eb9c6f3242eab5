"""Accesses the system like a server does, and returns what the system answers.

`read` and `write` access a path, `connect` opens a TCP connection to a local port, `send` sends a datagram to one,
`fetch` requests a URL through the configured proxy, `spawn` starts a child that reads a path, `run` executes code and
returns its `result`, and `temporary` creates a temporary file and returns its path.

"""

import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from upstreams.protocol import INITIALIZED, Message, arguments, refuse, reply, requests, text_reply

NAMES = ("read", "write", "connect", "send", "fetch", "spawn", "run", "temporary")


def access(tool: str, target: str) -> str:
    """Run a tool."""
    match tool:
        case "read":
            return Path(target).read_text()
        case "write":
            Path(target).write_text("written")
            return "written"
        case "connect":
            socket.create_connection(("127.0.0.1", int(target)), 5).close()
            return "connected"
        case "send":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"x", ("127.0.0.1", int(target)))
            return "sent"
        case "fetch":
            with urllib.request.urlopen(target, timeout=10) as response:
                return response.read().decode()
        case "run":
            names: dict[str, object] = {}
            exec(target, names)
            return str(names["result"])
        case "spawn":
            command = [sys.executable, "-c", f"print(open({target!r}).read())"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        case _:
            with tempfile.NamedTemporaryFile(delete=False) as made:
                return made.name


for request in requests():
    match request["method"]:
        case "initialize":
            reply(request, INITIALIZED)
        case "tools/list":
            schema = {"type": "object", "properties": {"target": {"type": "string"}}}
            reply(request, {"tools": [{"name": name, "inputSchema": schema} for name in NAMES]})
        case "tools/call":
            try:
                text_reply(request, access(request["params"]["name"], arguments(request).get("target", "")))
            except (OSError, subprocess.CalledProcessError) as error:
                failure: Message = {"content": [{"type": "text", "text": f"failed: {error}"}], "isError": True}
                reply(request, failure)
        case "ping":
            reply(request, {})
        case _:
            refuse(request)
