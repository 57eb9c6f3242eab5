"""Protocol constants used by both sides of the crib: eras, versions, reserved `_meta` keys and error codes.

`web.mcp` and `upstream` speak the same protocol and never import each other. No I/O, no SDK.
"""

import base64
import re
from typing import Final, Literal

Era = Literal["legacy", "modern"]
"""Legacy: a handshake opens an MCP session. Modern: every request is self-contained."""

MODERN_VERSION: Final = "2026-07-28"
HANDSHAKE_VERSION: Final = "2025-11-25"
LEGACY_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, lowest first."""

META: Final = "_meta"
KEY: Final = "io.modelcontextprotocol/"
OUR_KEY: Final = "toolcrib/"
"""Prefix of `_meta` keys for this crib, which are not forwarded to servers."""
APPROVAL_KEY: Final = f"{OUR_KEY}approval"
VERSION_KEY: Final = KEY + "protocolVersion"
CLIENT_INFO_KEY: Final = KEY + "clientInfo"
CAPABILITIES_KEY: Final = KEY + "clientCapabilities"
LOG_LEVEL_KEY: Final = KEY + "logLevel"
SERVER_INFO_KEY: Final = KEY + "serverInfo"

TASKS_EXTENSION: Final = KEY + "tasks"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
"""Legacy only; the modern era uses `INVALID_PARAMS`."""
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
ACTING_AS: Final = "toolcrib-token"
"""Header of a stdio front: the name of the token that the owner acts as."""
UNSUPPORTED_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042

CARRIED: Final = "toolcrib-carried"
"""Header that marks a request from a transport without headers, so arguments cannot be repeated in them."""
NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods whose subject is repeated in the header `Mcp-Name`, with the name of that parameter."""

_PLAIN_HEADER = re.compile(r"[\x20-\x7e]*")
_WRAPPED_HEADER = re.compile(r"=\?base64\?.*\?=")


def encode_header(value: str) -> str:
    """Return a value as a protocol header: unchanged, or base64-wrapped if a header cannot carry it."""
    if _PLAIN_HEADER.fullmatch(value) and value == value.strip() and not _WRAPPED_HEADER.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def reaches_level(level: object, wanted: str | None) -> bool:
    """Return whether a log message of `level` reaches a client whose log level is `wanted`. Without one, none does."""
    return level in LOG_LEVELS and wanted in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)
