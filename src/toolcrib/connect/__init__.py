"""Upstream MCP servers: started or dialled, greeted, talked to, kept and stopped.

`process` keeps the processes of stdio servers (`start` starts them, `guard` and `orphans` see to it that none outlives
the crib), `lines` and `wire` read what they say, `stdio` is the conversation, `greet` its first words, `sdk` puts the
official client on it; `http` is the same for remote servers, with `web` and `urls` on guard, `oauth`, `tokens` and
`signins` for signing in. `conversation` is what both wires have in common. `opening` opens one for a definition,
`offer` reads what a server offers, `link` keeps it connected, `exchange` is one call in somebody's name, `upstream` a
source of the catalog, `pool` all of it.

Above: `catalog`, `gate` and `host` use servers through their links. Below: `config` says what to start, `model` what a
tool is. Nothing else imports the MCP client or starts a server; and nothing here decides whether one may be started.
"""

from toolcrib.connect.greet import Greeting, Hello, open_greeted, probe
from toolcrib.connect.opening import Ground, credential_name
from toolcrib.connect.orphans import Swept
from toolcrib.connect.pool import Pool, Shelf
from toolcrib.connect.process import Processes, ServerFailed, Waits
from toolcrib.connect.signins import SignIns, SignInStatus
from toolcrib.connect.stdio import StdioConnection, open_stdio
from toolcrib.connect.tokens import open_tokens
from toolcrib.connect.web import open_web
from toolcrib.model.sources import ProtocolError

__all__ = [
    "Greeting",
    "Ground",
    "Hello",
    "Pool",
    "Processes",
    "ProtocolError",
    "ServerFailed",
    "Shelf",
    "SignInStatus",
    "SignIns",
    "StdioConnection",
    "Swept",
    "Waits",
    "credential_name",
    "open_greeted",
    "open_stdio",
    "open_tokens",
    "open_web",
    "probe",
]
