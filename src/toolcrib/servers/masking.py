"""Masks secrets in everything that is shown: definitions, origins, trust prompts, warnings, diffs.

Masks when in doubt: a value of `env` or `headers` is shown only if it is a reference or clearly harmless. Code is the
exception: single words are masked, never what it does. Masking never changes what a server is started with.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from toolcrib.base.masking.kinds import secret_pattern
from toolcrib.base.masking.urls import mask_url as mask_parts
from toolcrib.base.masking.values import is_maskable
from toolcrib.base.masking.words import (
    SCHEMES,
    Suspicion,
    announced,
    is_odd,
    is_secret_parameter,
    is_secret_setting,
    is_secret_word,
)
from toolcrib.model.json import Json, JsonObject, as_list, as_object, dumps, loads
from toolcrib.servers.commands import code_words
from toolcrib.servers.variables import SYNTAXES, references

MASK = "****"

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
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-([^}]+)\}")
_SEPARATOR = re.compile(r"[;|&()<>]+")
_CODE_WORD = re.compile(r"""[^\s'"`;|&()<>]+(?:(?<==)(?:"[^"$`]*"|'[^']*'))?|[;|&()<>]+""")
"""A word of code, including an assigned quoted text; or an operator between two commands."""
_PIECE = re.compile(r"sha(?:1|256|384|512)[:-][0-9A-Za-z+/=]+|[^\s=:,;|@/#\"'`()<>{}\[\]]{14,}")
_REVISION = re.compile(r"[0-9a-f]{7,40}")
_GIT = re.compile(r"git|[#@]")
_FLAG = re.compile(r"^(--?[A-Za-z][A-Za-z0-9_.-]*)=(.*)$", re.DOTALL)
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.+)$", re.DOTALL)
_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):\s*(.+)$", re.DOTALL)


def mask(value: str) -> str:
    """Mask a secret, keeping its last four characters if enough remains hidden."""
    return f"{MASK}{value[-4:]}" if len(value) >= 16 else MASK


def mask_value(name: str, value: str) -> str:
    """Mask a value of `env` or `headers` unless it is a reference or harmless."""
    prefix, rest = _scheme(value)
    if is_reference(rest) or (_is_harmless(value) and not is_secret_setting(name)):
        return value
    if name.lower() in _SAFE_HEADERS and not looks_secret(value):
        return value
    return prefix + mask(rest)


def mask_text(text: str) -> str:
    """Mask the parts that look secret of a text that is mostly not secret: an argument or a message."""
    shown = _mask_json(text) if text.startswith(("{", "[")) else _mask_word(text)
    return mask_code(text) if shown == text and re.search(r"\s", text) else shown


def mask_code(text: str) -> str:
    """Mask words of code, or of a whole command line in one text; never more than a word at a time."""
    shown = iter(_mask_words(_CODE_WORD.findall(text), (), _mask_word))
    return _CODE_WORD.sub(lambda _: next(shown), text)


def mask_command(words: Sequence[str]) -> list[str]:
    """Mask a command line, program first. What it runs stays readable."""
    return _mask_words(words, code_words(words), mask_text)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask arguments; the value of a flag like `--token` is a secret."""
    return _mask_words(arguments, (), mask_text)


def mask_url(url: str) -> str:
    """Mask the login of a URL, and parameters, fragments and path segments that look secret."""
    return mask_parts(url, mask, is_reference)


def hidden_values(env: Mapping[str, str], headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the masked values of variables and headers; for `Bearer …`, also the credential alone."""
    for name, value in (*env.items(), *headers.items()):
        if mask_value(name, value) != value:
            yield from (value, _scheme(value)[1])


def secret_values(
    env: Mapping[str, str], headers: Mapping[str, str], words: Sequence[str], url: str | None
) -> Iterator[str]:
    """Yield the secrets of a definition whose references are resolved.

    Every variable is masked, but it counts as a secret only by its name or look: others are words like `us-east-1`.
    """
    for name, value in (*env.items(), *headers.items()):
        secret = _scheme(value)[1]
        if is_secret_setting(name) or (is_odd(secret) and "://" not in secret and not _PATH.match(secret)):
            yield from hidden_values({name: value}, {})
    follows = announced(words)
    for index, (word, shown) in enumerate(zip(words, mask_command(words), strict=True)):
        if shown != word:
            yield from _secrets_of_word(word, shown, follows.get(index))
    yield from _secrets_of_url(url) if url is not None else ()


def _secrets_of_word(word: str, shown: str, start: int | None) -> Iterator[str]:
    """Yield the secrets of a masked argument: all of it, the value assigned in it, or pieces of it."""
    if start is not None or shown == mask(word):
        yield word[start or 0 :]
    elif "://" in word:
        yield from (secret for found in _URL.findall(word) for secret in _secrets_of_url(found))
    elif "=" in word:
        yield word.rpartition("=")[2]
    yield from (piece for piece in _PIECE.findall(word) if looks_secret(piece))


def _secrets_of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        return
    yield from (unquote(each) for each in (parts.username, parts.password) if each)
    yield from (value for name, value in query if is_secret_parameter(name, value) or looks_secret(value))
    for part in (*parts.path.split("/"), parts.fragment):
        if looks_secret(unquote(part)) or looks_secret(part):
            yield from (part, unquote(part))


def mask_definition(raw: JsonObject) -> JsonObject:
    """Return a definition as written, with every secret masked, also where it is repeated."""
    known = [value for value in _declared_secrets(raw) if is_maskable(value)]
    shown = {key: _mask_field(key, value) for key, value in raw.items()}
    return {key: _mask_repeated(value, known) for key, value in shown.items()} if known else shown


def _declared_secrets(raw: JsonObject) -> Iterator[str]:
    """Yield the secrets that a definition writes out in its variables and headers."""
    for key in _MAPS:
        declared = as_object(raw.get(key)) or {}
        texts = {name: value for name, value in declared.items() if isinstance(value, str) and not is_reference(value)}
        if texts:
            yield from secret_values(texts, {}, (), None)


def _mask_repeated(value: Json, known: Sequence[str]) -> Json:
    """Mask secrets that a definition repeats elsewhere, such as a header's value in the URL."""
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        return {name: _mask_repeated(item, known) for name, item in mapping.items()}
    if listed is not None:
        return [_mask_repeated(item, known) for item in listed]
    if isinstance(value, str):
        for each in known:
            value = value.replace(each, MASK)
    return value


def looks_secret(text: str) -> bool:
    """Return whether a text has the form of a key: a known kind, or random."""
    return is_secret_word(text, Suspicion.SETTING) and not is_reference(text)


def is_reference(text: str) -> bool:
    """Return whether a text is exactly one reference in the syntax of some app."""
    stripped = text.strip()
    return stripped.startswith(("$", "{")) and any(
        len(found) == 1 and found[0].text == stripped and not found[0].default
        for found in (references(stripped, name) for name in SYNTAXES)
    )


def _mask_words(words: Sequence[str], code: Collection[int], plain: Callable[[str], str]) -> list[str]:
    masked: list[str] = []
    secret_follows = False
    positions = announced(words)
    for index, word in enumerate(words):
        is_code = index in code
        start = positions.get(index, 0)
        if secret_follows and not is_code and _is_value(word):
            masked.append(mask(word))
        elif start and not is_code and not is_reference(word[start:]):
            masked.append(word[:start] + mask(word[start:]))
        else:
            masked.append(mask_code(word) if is_code else plain(word))
        is_scheme = secret_follows and word.lower() in SCHEMES
        secret_follows = not is_code and (is_scheme or _announces_secret(word))
    return masked


def _is_value(word: str) -> bool:
    """Return whether a word can be the value of a flag: not a flag, reference, scheme or shell operator."""
    is_flag = word.startswith("-") and not looks_secret(word.lstrip("-"))
    is_other = is_flag or word.lower() in SCHEMES or _SEPARATOR.fullmatch(word)
    return not is_other and not is_reference(word)


def _announces_secret(word: str) -> bool:
    """Return whether a word is a flag such as `--token`, or the name of a header."""
    is_name = word.endswith(":") or (word.startswith("-") and "=" not in word)
    return is_name and not re.search(r"\s", word) and is_secret_setting(word.strip("-:"))


def _mask_word(text: str) -> str:
    for pattern in (_FLAG, _ASSIGNMENT, _HEADER):
        matched = pattern.match(text)
        if matched:
            name, value = matched[1], matched[2]
            if is_secret_setting(name) and not is_reference(_scheme(value)[1]):
                return text[: matched.start(2)] + mask(value)
            if pattern is _FLAG:
                # The value of a flag like `--env=` or `--header=` contains another name and value.
                return text[: matched.start(2)] + _mask_word(value)
    text = _DEFAULT.sub(_mask_default, text)
    text = secret_pattern().sub(lambda found: mask(found[0]), text)
    if "://" in text:
        return _URL.sub(lambda found: mask_url(found[0]), text)
    return mask(text) if looks_secret(text) else _PIECE.sub(lambda found: _mask_piece(found[0], text), text)


def _mask_piece(piece: str, text: str) -> str:
    """Mask a part of a word, such as the value in `name=value`. Digests and git revisions are shown."""
    is_digest = piece.startswith("sha") or (_REVISION.fullmatch(piece) is not None and _GIT.search(text) is not None)
    return mask(piece) if not is_digest and looks_secret(piece) else piece


def _mask_json(text: str) -> str:
    try:
        value: Json = loads(text)
        shown = _mask_field("", value)
    except orjson.JSONDecodeError:
        return _mask_word(text)
    except RecursionError:
        return mask(text)
    return text if shown == value else dumps(shown).decode()


def _mask_default(found: re.Match[str]) -> str:
    name, default = found[1], found[2]
    return f"${{{name}:-{MASK}}}" if is_secret_setting(name) or looks_secret(default) else found[0]


def _is_harmless(value: str) -> bool:
    if not value or _HARMLESS.match(value):
        return True
    is_place = _PATH.match(value) or _LOCAL_URL.match(value)
    return bool(is_place) and not any(looks_secret(part) for part in re.split(r"[/\\]", value))


def _scheme(value: str) -> tuple[str, str]:
    """Split a scheme such as `Bearer ` from the rest."""
    first, space, rest = value.partition(" ")
    return (first + space, rest) if space and first.lower() in SCHEMES else ("", value)


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
        return _mask_member(key, value) if is_secret_setting(key) else value
    if key in _URLS:
        return mask_url(value)
    return mask_value(key, value) if is_secret_setting(key) else mask_text(value)


def _mask_member(name: str, value: Json) -> Json:
    """Mask a member of `env` or `headers`; a value that is not text may be a secret as well."""
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
    """Mask arguments; those that are not text keep their type unless they are masked."""
    words = [str(item) if isinstance(item, str | int | float) else "" for item in items]
    shown = mask_arguments(words)
    return [
        masked if masked != word else item if isinstance(item, str) else _mask_field(key, item)
        for item, word, masked in zip(items, words, shown, strict=True)
    ]
