"""The crib's servers by name: their definitions, seen from any directory and changed with a way back, and their links.

`view` finds what there is and remembers it until a file changes, `edits` changes one file and tells what changed,
`transfer` moves definitions between tools, `desk` is the one that is asked. `links` is what a person does to a link,
`standing` how a server stands. Above: `host`, REST and the console. Below: `config`, and `connect` for `links` alone:
nothing else here ever starts, resolves or contacts a server.
"""

from toolcrib.servers.desk import Details, Servers
from toolcrib.servers.edits import Edit
from toolcrib.servers.links import Links
from toolcrib.servers.standing import Standing
from toolcrib.servers.transfer import Export, Moved, Proposal, Transfer

__all__ = ["Details", "Edit", "Export", "Links", "Moved", "Proposal", "Servers", "Standing", "Transfer"]
