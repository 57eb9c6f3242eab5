"""Hides secrets in everything that is shown: definitions, origins, trust questions, warnings, differences.

The rule leans to hiding: a value of `env` or `headers` is shown only if it is a reference or plainly harmless. Code is
the exception: single words of it are hidden, never what it does. Masking never changes what a server is started with.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import orjson

from toolcrib.config.commands import code_words
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
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-([^}]+)\}")
_SCHEMES = ("bearer", "basic", "token")
_SEPARATOR = re.compile(r"[;|&()<>]+")
_CODE_WORD = re.compile(r"""[^\s'"`;|&()<>]+(?:(?<==)(?:"[^"$`]*"|'[^']*'))?|[;|&()<>]+""")
"""A word of code, with a quoted text that is assigned in it; or what parts one command from the next."""
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
    """A text that is mostly not secret (an argument, a message): only what looks secret is hidden."""
    shown = _mask_json(text) if text.startswith(("{", "[")) else _mask_word(text)
    return mask_code(text) if shown == text and re.search(r"\s", text) else shown


def mask_code(text: str) -> str:
    """Code, or a whole command line in one text: words in it are hidden, never more than a word."""
    shown = iter(_mask_words(_CODE_WORD.findall(text), (), _mask_word))
    return _CODE_WORD.sub(lambda _: next(shown), text)


def mask_command(words: Sequence[str]) -> list[str]:
    """A command line, program first. What it would run stays readable."""
    return _mask_words(words, code_words(words), mask_text)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments; what follows a flag like `--token` is a secret."""
    return _mask_words(arguments, (), mask_text)


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


def _mask_words(words: Sequence[str], code: Collection[int], plain: Callable[[str], str]) -> list[str]:
    masked: list[str] = []
    secret_follows = False
    for index, word in enumerate(words):
        is_code = index in code
        if secret_follows and not is_code and _is_value(word):
            masked.append(mask(word))
        else:
            masked.append(mask_code(word) if is_code else plain(word))
        is_scheme = secret_follows and word.lower() in _SCHEMES
        secret_follows = not is_code and (is_scheme or _announces_secret(word))
    return masked


def _is_value(word: str) -> bool:
    """Whether a word can be what a flag announced: no flag, no reference, no scheme, no mark of a shell."""
    is_other = word.startswith("-") or word.lower() in _SCHEMES or _SEPARATOR.fullmatch(word)
    return not is_other and not is_reference(word)


def _announces_secret(word: str) -> bool:
    """A flag such as `--token`, or the name of a header."""
    is_name = word.endswith(":") or (word.startswith("-") and "=" not in word)
    return is_name and not re.search(r"\s", word) and bool(_SECRET_NAME.search(word))


def _mask_word(text: str) -> str:
    for pattern in (_FLAG, _ASSIGNMENT, _HEADER):
        matched = pattern.match(text)
        if matched:
            name, value = matched[1], matched[2]
            if _SECRET_NAME.search(name) and not is_reference(_scheme(value)[1]):
                return text[: matched.start(2)] + mask(value)
            if pattern is _FLAG:
                # A flag like `--env=` or `--header=` holds another name with its value.
                return text[: matched.start(2)] + _mask_word(value)
    text = _DEFAULT.sub(_mask_default, text)
    if "://" in text:
        return _URL.sub(lambda found: mask_url(found[0]), text)
    return mask(text) if looks_secret(text) else text


def _mask_json(text: str) -> str:
    try:
        value: Json = orjson.loads(text)
        shown = _mask_field("", value)
    except orjson.JSONDecodeError:
        return _mask_word(text)
    except RecursionError:
        return mask(text)
    return text if shown == value else orjson.dumps(shown).decode()


def _mask_default(found: re.Match[str]) -> str:
    name, default = found[1], found[2]
    return f"${{{name}:-{MASK}}}" if _SECRET_NAME.search(name) or looks_secret(default) else found[0]


def _is_harmless(value: str) -> bool:
    return not value or bool(_HARMLESS.match(value) or _PATH.match(value) or _LOCAL_URL.match(value))


def _scheme(value: str) -> tuple[str, str]:
    """`Bearer ` and the like apart from what follows."""
    first, space, rest = value.partition(" ")
    return (first + space, rest) if space and first.lower() in _SCHEMES else ("", value)


def _query_value(name: str, value: str) -> str:
    if is_reference(value):
        return value
    return mask(value) if value and (_SECRET_NAME.search(name) or looks_secret(value)) else value


def _mask_field(key: str, value: Json) -> Json:
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        if key in _MAPS:
            return {name: _mask_member(name, item) for name, item in mapping.items()}
        return mask_definition(mapping)
    if listed is not None:
        if key in _LISTS:
            return _mask_list(key, listed)
        return [_mask_field(key, item) for item in listed]
    if not isinstance(value, str):
        return _mask_member(key, value) if _SECRET_NAME.search(key) else value
    if key in _URLS:
        return mask_url(value)
    return mask_value(key, value) if _SECRET_NAME.search(key) else mask_text(value)


def _mask_member(name: str, value: Json) -> Json:
    """A member of `env` or `headers`; what should be text and is not may be a secret all the same."""
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        return {key: _mask_member(name, item) for key, item in mapping.items()}
    if listed is not None:
        return [_mask_member(name, item) for item in listed]
    if value is None or isinstance(value, bool):
        return value
    shown = mask_value(name, str(value))
    return value if shown == str(value) else shown


def _mask_list(key: str, items: list[Json]) -> list[Json]:
    """Arguments; those that are not text keep their type unless they are hidden."""
    words = [str(item) if isinstance(item, str | int | float) else "" for item in items]
    shown = mask_arguments(words)
    return [
        masked if masked != word else item if isinstance(item, str) else _mask_field(key, item)
        for item, word, masked in zip(items, words, shown, strict=True)
    ]
