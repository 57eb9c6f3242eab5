"""The body of a record that tells of a change and not of a call: of permissions, or of the chain itself.

Its `server` is `toolcrib` and its `tool` the kind of change, with a dot in it, as no tool of that server has. Above:
`changes` and `segments`. It must never show a secret that `redact` can see.
"""

import secrets

import orjson

from toolcrib.audit.redact import shown
from toolcrib.model.json import JsonObject, canonical, digest, storable
from toolcrib.model.principals import Principal

SERVER = "toolcrib"


def change(kind: str, changed: JsonObject, by: Principal, door: str) -> JsonObject:
    """What the records of one change have in common."""
    changed = storable(changed)
    return {
        "call": secrets.token_hex(6),
        "door": door,
        "principal": by.to_json(),
        "server": SERVER,
        "tool": kind,
        "definitionHash": None,
        "argumentsDigest": digest(changed),
        "arguments": orjson.loads(shown(changed, canonical(changed))),
        "decision": "allow",
        "rules": [],
    }
