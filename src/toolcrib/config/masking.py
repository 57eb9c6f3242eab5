"""Hides secrets in everything that is shown: definitions, origins, trust questions.

The rule leans to hiding: a value of `env` or `headers` is shown only if it is a reference or plainly harmless. It never
changes what a server is started with.
"""

import math
import re
from collections import Counter
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from toolcrib.config.expand import SYNTAXES, references
from toolcrib.config.values import as_list, as_object
from toolcrib.model.json import Json, JsonObject

MASK = "****"

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|api[-_]?key|apikey|access[-_]?key|private|credential|auth|cookie|session|signature"
    r"|\bpat\b|[-_]pat\b|[-_]key$|^key$|\bdsn\b|database_url|connection[-_]?string|bearer|jwt|webhook|\bpin\b|otp",
    re.IGNORECASE,
)
_KNOWN_SECRET = re.compile(
    r"(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|pk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|eyJ|SG\.|hf_"
    r"|npm_|pypi-|dop_v1_|shpat_|sq0|EAAC|figd_|lin_api_|ntn_|secret_|tvly-|fc-|BSA|ctx7sk|-----BEGIN)[A-Za-z0-9_\-. ]*"
)
_HARMLESS = re.compile(
    r"^(?:true|false|yes|no|on|off|null|none|auto|default|debug|info|warn|warning|error|trace|production|development"
    r"|staging|test|local|stdio|http|sse|utf-?8|[0-9]{1,5}(?:\.[0-9]{1,4})?|v?[0-9]+(?:\.[0-9]+){1,3})$",
    re.IGNORECASE,
)
_PATH = re.compile(r"^(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s?#=&;:]*$")
_LOCAL_URL = re.compile(r"^https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?(?:/[A-Za-z0-9_\-/.]{0,40})?$")
_SAFE_HEADERS = frozenset({"accept", "content-type", "user-agent", "accept-language", "mcp-protocol-version"})
_MAPS = frozenset({"env", "environment", "envs", "headers", "http_headers", "env_http_headers"})
_LISTS = frozenset({"args", "command"})
_URLS = frozenset({"url", "httpUrl", "serverUrl", "serverURL", "uri"})
_OPAQUE = re.compile(r"[A-Za-z0-9_\-+/=.]{20,}")
_FLAG = re.compile(r"^(--?[A-Za-z][A-Za-z0-9_.-]*)=(.*)$", re.DOTALL)
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.+)$", re.DOTALL)
_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):\s*(.+)$", re.DOTALL)


def mask(value: str) -> str:
    """A secret for people: its last four characters if that leaves enough hidden."""
    return f"{MASK}{value[-4:]}" if len(value) >= 16 else MASK


def mask_value(name: str, value: str) -> str:
    """A value of `env` or `headers`: shown if it is a reference or harmless, else masked."""
    prefix, rest = _scheme(value)
    if is_reference(rest) or (_is_harmless(value) and not _SECRET_NAME.search(name)):
        return value
    if name.lower() in _SAFE_HEADERS and not looks_secret(value):
        return value
    return prefix + mask(rest)


def mask_text(text: str) -> str:
    """A text that is mostly not secret (a command, an argument, a message): only what looks secret is hidden."""
    if "://" in text:
        return mask_url(text)
    for pattern in (_FLAG, _ASSIGNMENT, _HEADER):
        matched = pattern.match(text)
        if matched:
            name, value = matched[1], matched[2]
            if _SECRET_NAME.search(name) and not is_reference(_scheme(value)[1]):
                return text[: matched.start(2)] + mask(value)
    return mask(text) if looks_secret(text) else text


def mask_arguments(arguments: list[str]) -> list[str]:
    """Arguments; what follows a flag like `--token` is a secret."""
    masked: list[str] = []
    secret_follows = False
    for argument in arguments:
        hide = secret_follows and not argument.startswith("-") and not is_reference(argument)
        masked.append(mask(argument) if hide else mask_text(argument))
        secret_follows = argument.startswith("-") and "=" not in argument and bool(_SECRET_NAME.search(argument))
    return masked


def mask_url(url: str) -> str:
    """A URL without password, and without query values and path parts that look secret."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return mask(url)
    host = parts.netloc
    if "@" in host:
        host = f"{MASK}@{host.rpartition('@')[2]}"
    shown = "&".join(f"{name}={_query_value(name, value)}" for name, value in query) if query else parts.query
    path = "/".join(mask(part) if looks_secret(part) else part for part in parts.path.split("/"))
    return urlunsplit((parts.scheme, host, path, shown, mask(parts.fragment) if parts.fragment else ""))


def mask_definition(raw: JsonObject) -> JsonObject:
    """A definition as written, with every secret hidden."""
    return {key: _mask_field(key, value) for key, value in raw.items()}


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a key: a known prefix, or long, unbroken and random."""
    if _KNOWN_SECRET.match(text) and len(text) >= 12:
        return True
    if not _OPAQUE.fullmatch(text) or "/" in text.strip("/") or is_reference(text):
        return False
    digits = sum(character.isdigit() for character in text)
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return digits >= 2 and bits > 3.2 and not re.search(r"[-_.][a-z]{3,}[-_.]", text)


def is_reference(text: str) -> bool:
    """Whether a text is nothing but one reference of some client's syntax."""
    stripped = text.strip()
    return stripped.startswith(("$", "{")) and any(
        len(found) == 1 and found[0].text == stripped and not found[0].default
        for found in (references(stripped, name) for name in SYNTAXES)
    )


def _is_harmless(value: str) -> bool:
    return not value or bool(_HARMLESS.match(value) or _PATH.match(value) or _LOCAL_URL.match(value))


def _scheme(value: str) -> tuple[str, str]:
    """`Bearer ` and the like apart from what follows."""
    first, space, rest = value.partition(" ")
    return (first + space, rest) if space and first.lower() in ("bearer", "basic", "token") else ("", value)


def _query_value(name: str, value: str) -> str:
    if is_reference(value):
        return value
    return mask(value) if value and (_SECRET_NAME.search(name) or looks_secret(value)) else value


def _mask_field(key: str, value: Json) -> Json:
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        if key in _MAPS:
            return {name: mask_value(name, item) if isinstance(item, str) else item for name, item in mapping.items()}
        return mask_definition(mapping)
    if listed is not None:
        if key in _LISTS and all(isinstance(item, str) for item in listed):
            return mask_arguments(listed)
        return [_mask_field(key, item) for item in listed]
    if not isinstance(value, str):
        return value
    if key in _URLS:
        return mask_url(value)
    return mask_value(key, value) if _SECRET_NAME.search(key) else mask_text(value)
