"""Upstream MCP servers: started, greeted, talked to and stopped.

`process` keeps the processes of stdio servers (`start` starts them, `guard` and `orphans` see to it that none outlives
the crib), `lines` and `wire` read what they say, `stdio` is the conversation, `greet` its first words, `sdk` puts the
official client on it.

Above: `catalog`, `gate` and `host` use servers through their links. Below: `config` says what to start, `model` what a
tool is. Nothing else imports the MCP client or starts a server; and nothing here decides whether one may be started.
"""

from toolcrib.connect.greet import Greeting, Hello, open_greeted, probe
from toolcrib.connect.orphans import Swept
from toolcrib.connect.process import Processes, ServerFailed, Waits
from toolcrib.connect.stdio import StdioConnection, open_stdio
from toolcrib.model.sources import ProtocolError

__all__ = [
    "Greeting",
    "Hello",
    "Processes",
    "ProtocolError",
    "ServerFailed",
    "StdioConnection",
    "Swept",
    "Waits",
    "open_greeted",
    "open_stdio",
    "probe",
]
