"""The crib's servers by name: their definitions, seen from any directory and changed with a way back, and their links.

`view` finds what there is and remembers it until a file changes, `edits` changes one file and tells what changed,
`transfer` moves definitions between tools, `desk` is the one that is asked. `links` is what a person does to a link,
`standing` how a server stands; `clients` writes this crib into the files of tools. Above: `host`, REST and the console.
Below: `config`, and `connect` for `links` alone: nothing else here ever starts, resolves or contacts a server.
"""

from toolcrib.servers.clients import Clients, Reach
from toolcrib.servers.connections import Asked, ClientState, Connected, Connection, Disconnected
from toolcrib.servers.desk import Details, Servers
from toolcrib.servers.edits import Edit
from toolcrib.servers.links import Links
from toolcrib.servers.standing import Standing
from toolcrib.servers.transfer import Export, Moved, Proposal, Transfer

__all__ = [
    "Asked",
    "ClientState",
    "Clients",
    "Connected",
    "Connection",
    "Details",
    "Disconnected",
    "Edit",
    "Export",
    "Links",
    "Moved",
    "Proposal",
    "Reach",
    "Servers",
    "Standing",
    "Transfer",
]
