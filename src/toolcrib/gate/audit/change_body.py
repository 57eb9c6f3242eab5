"""The body of a record about a change instead of a call: of permissions, or of the chain itself.

Its `server` is `toolcrib` and its `tool` the kind of change, which contains a dot, unlike any tool of that server. Must
never show a secret that `redact` can detect.
"""

import secrets

from toolcrib.base.masking.values import Redactor
from toolcrib.model.json import JsonObject, canonical, digest, loads, storable
from toolcrib.model.principals import Principal

SERVER = "toolcrib"


def change(kind: str, changed: JsonObject, by: Principal, door: str, redactor: Redactor | None = None) -> JsonObject:
    """Return the members that the records of one change share. Without a `redactor`, the change is shown unredacted."""
    changed = storable(changed)
    shown = loads(redactor.shown(changed, canonical(changed))) if redactor is not None else changed
    return {
        "call": secrets.token_hex(6),
        "door": door,
        "principal": by.to_json(),
        "server": SERVER,
        "tool": kind,
        "definitionHash": None,
        "argumentsDigest": digest(changed),
        "arguments": shown,
        "decision": "allow",
        "rules": [],
    }
