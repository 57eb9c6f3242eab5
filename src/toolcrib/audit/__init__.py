"""The audit: what was called, by whom, why it was allowed, and how it ended, in one chain of hashes.

`records` takes calls in and answers questions, `changes` does the same for what changes permissions, `chain` numbers
and links the records, `head` keeps the end of the chain outside the database, `redact` decides what of the arguments is
shown, `verify` finds what was tampered with, `export` hands records out, `segments` keeps old ones in files.

Above: the gate records, `server` and `cli` ask. Below: the store. It must never say that something is recorded before
it is durable.
"""

from toolcrib.audit.changes import Changes
from toolcrib.audit.records import Audit, CallRecord
from toolcrib.audit.verify import Finding, Verification
from toolcrib.store.audit import Filters

__all__ = ["Audit", "CallRecord", "Changes", "Filters", "Finding", "Verification"]
