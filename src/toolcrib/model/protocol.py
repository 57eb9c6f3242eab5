"""Words of the protocol that both sides of the crib use: its eras, versions, reserved `_meta` keys and error codes.

The front (`server.mcp`) and the upstream side (`connect`) speak the same protocol and never import each other; what
they have to agree on stands here. No I/O, no SDK.
"""

import base64
import re
from typing import Final, Literal

Era = Literal["legacy", "modern"]
"""Legacy: a handshake opens a session. Modern: every request carries what it needs."""

MODERN_VERSION: Final = "2026-07-28"
HANDSHAKE_VERSION: Final = "2025-11-25"
LEGACY_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})

META: Final = "_meta"
KEY: Final = "io.modelcontextprotocol/"
OUR_KEY: Final = "toolcrib/"
"""What members of `_meta` begin with that are for this crib and no server behind it."""
APPROVAL_KEY: Final = f"{OUR_KEY}approval"
VERSION_KEY: Final = KEY + "protocolVersion"
CLIENT_INFO_KEY: Final = KEY + "clientInfo"
CAPABILITIES_KEY: Final = KEY + "clientCapabilities"
LOG_LEVEL_KEY: Final = KEY + "logLevel"
SERVER_INFO_KEY: Final = KEY + "serverInfo"
SUBSCRIPTION_KEY: Final = KEY + "subscriptionId"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
"""Legacy only; the modern era says `INVALID_PARAMS`."""
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042

NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose subject the header `Mcp-Name` repeats, and the parameter it repeats."""

_PLAIN_HEADER = re.compile(r"[\x20-\x7e]*")
_WRAPPED_HEADER = re.compile(r"=\?base64\?.*\?=")


def encode_header(value: str) -> str:
    """A value as a header of the protocol carries it: as it is, or wrapped where a header could not hold it."""
    if _PLAIN_HEADER.fullmatch(value) and value == value.strip() and not _WRAPPED_HEADER.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
