"""The crib's desk for server definitions: seen from any directory, changed with a way back.

`view` finds what there is and remembers it until a file changes, `edits` changes one file and tells what changed,
`transfer` moves definitions between tools, `desk` is the one that is asked. Above: `host`, REST and the console.
Below: `config`. Nothing here ever starts, resolves or contacts a server.
"""

from toolcrib.servers.desk import Details, Servers
from toolcrib.servers.edits import Edit
from toolcrib.servers.transfer import Export, Moved, Proposal, Transfer

__all__ = ["Details", "Edit", "Export", "Moved", "Proposal", "Servers", "Transfer"]
