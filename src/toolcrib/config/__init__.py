"""Every coding tool's MCP configuration: found, read, judged, merged and edited.

The flow: `places` says where files may be, `readers` make definitions of them, `discover` merges these to one list,
`trust` and `resolve` stand between a definition and its start, `edit` and `own` change files, `export` and `paste`
speak all clients' formats, `memory` keeps what a file that broke last said. Above it are `connect`, the CLI and the
API; below it `model`, `errors` and files. It must never start, resolve or contact anything for a definition that nobody
agreed to.
"""

from toolcrib.config.discover import discover, surroundings
from toolcrib.config.edit.entries import add_server, apply_change, put_server, remove_server, switch_server
from toolcrib.config.edit.write import Change, Writing, undo_change
from toolcrib.config.export import Written, client_named, entry_for, snippet
from toolcrib.config.identity import identity, is_safe_name
from toolcrib.config.masking import mask_definition, mask_text, mask_url
from toolcrib.config.memory import LastGood
from toolcrib.config.paste import Pasted, recognise
from toolcrib.config.places import Surroundings, all_places, project_directories
from toolcrib.config.readers.clients import CLIENTS
from toolcrib.config.readers.read import Place
from toolcrib.config.resolve import Origin, Resolved, missing, origins, resolve
from toolcrib.config.secrets import SecretCommands
from toolcrib.config.trust import (
    TrustBook,
    TrustQuestion,
    TrustRecord,
    change_trust,
    definition_digest,
    load_trust,
    trust_question,
)

__all__ = [
    "CLIENTS",
    "Change",
    "LastGood",
    "Origin",
    "Pasted",
    "Place",
    "Resolved",
    "SecretCommands",
    "Surroundings",
    "TrustBook",
    "TrustQuestion",
    "TrustRecord",
    "Writing",
    "Written",
    "add_server",
    "all_places",
    "apply_change",
    "change_trust",
    "client_named",
    "definition_digest",
    "discover",
    "entry_for",
    "identity",
    "is_safe_name",
    "load_trust",
    "mask_definition",
    "mask_text",
    "mask_url",
    "missing",
    "origins",
    "project_directories",
    "put_server",
    "recognise",
    "remove_server",
    "resolve",
    "snippet",
    "surroundings",
    "switch_server",
    "trust_question",
    "undo_change",
]
