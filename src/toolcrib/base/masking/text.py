"""Masks secrets in text of any kind: messages, log lines, server output, arguments of calls.

Only the secret is replaced, the text around it stays readable. Order: known values, forms of the table, values with
secret names, random words.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import unquote

from toolcrib.base.masking import MASK
from toolcrib.base.masking.kinds import block_pattern, secret_pattern, webhook_pattern
from toolcrib.base.masking.words import (
    SCHEMES,
    Suspicion,
    announces_secret,
    is_code,
    is_count,
    is_credential,
    is_secret_of,
    is_secret_parameter,
    is_secret_word,
    stands_for_secret,
)

Mask = Callable[[str], str]
"""Masks a secret, or the secrets in a text."""

_ASSIGNED: Final = re.compile(
    r"""
    (?<![\w.-]) ([A-Za-z_][\w.-]{0,80}) (["'\\]{0,4}\s{0,4}[:=]{1,3}>?\s{0,4})
    (?: ((?:\b[rbfuRBFU]{1,2})?\\{0,3}["'`])([^"'`\\\n]{1,4096}) | ([^\s"'`\\&,;<>|(){}\[\]]{1,4096}) )
    """,
    re.VERBOSE | re.ASCII,
)
"""A name, `=` or `:`, and a value: quoted, or up to the next blank or separator."""
_AFTER_SCHEME: Final = re.compile(
    r"(\b(?:bearer|apikey|negotiate)\s+)([^\s\"',;<>\\]+)"
    r"|(\bbasic\s+)((?-i:(?=\S*(?:[a-z][A-Z]|[0-9=])))[\w+/=-]{8,})"
    r"|(\bauthorization[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}(?:token|digest|\w{1,20})\s+)([^\s\"',;<>\\]{4,})",
    re.IGNORECASE | re.ASCII,
)
_LOGIN: Final = re.compile(r"(://[^/\s:@?#\"'<>]*:)([^/\s\"'<>]+)(?=@)|(://)([^/\s:@?#\"'<>]{12,})(?=@)", re.ASCII)
_QUERY: Final = re.compile(r"([?&#;])([\w.\[\]-]{1,80})=([^\s&#\"'<>\\;]{1,4096})", re.ASCII)
_FLAG: Final = re.compile(
    r"(?<![\w-])(--?[A-Za-z][\w.-]{0,60})((?:\s{1,4}|=)[\"']?)(?!-)([^\s\"'\\]{1,4096})", re.ASCII
)
_USER: Final = re.compile(
    r"((?<![\w-])(?:-u|-U|--user|--proxy-user)(?:\s{1,4}|=)?[\"']?[^\s:\"'/-][^\s:\"'/]{0,64}:)(?![\d]+(?![^\s\"']))"
    r"([^\s\"'/][^\s\"']{2,})",
    re.ASCII,
)
_PASSWORD_FLAG: Final = re.compile(
    r"(\b(?:mysql\w*|mariadb[\w-]*|sshpass|mongo\w*|7z\w?|unzip|smbclient)\b[^|;&\n]{0,200}?\s-p)([^\s\"'|;&-][^\s\"']{2,})"
    r"|(\b(?:sshpass|docker\s+login|podman\s+login|mongo\w*)\b[^|;&\n]{0,200}?\s-p\s+[\"']?)([^\s\"'|;&-][^\s\"']{2,})"
    r"|((?<![\w-])-p)((?=\S*\d)(?=\S*[A-Z!@#$%^&*?])[^\s\"'\d:][^\s\"']{5,})",
    re.ASCII,
)
_WORD: Final = re.compile(r"(?<![\w+/=.~%-])[\w+/=.~%:|$-]{12,}", re.ASCII)
_PLAIN_WORD: Final = re.compile(r"[\w.~+/=:@%|-]+", re.ASCII)
_MOST_ORDINARY: Final = 8192
_PART: Final = re.compile(r"[^/=:|$]{12,}")
_DIGEST_LABEL: Final = re.compile(r"(?<![A-Za-z0-9])(?:sha(?:1|224|256|384|512)|md5)[:=]\Z", re.IGNORECASE)
_ORDINARY: Final[dict[Suspicion, set[str]]] = {suspicion: set() for suspicion in Suspicion}
_QUICK: Final = re.compile(r"[:=@-]|\b(?:basic|bearer|apikey|negotiate)\b", re.IGNORECASE)


def mask_text(text: str, mask_known: Mask = str, suspicion: Suspicion = Suspicion.TEXT) -> str:
    """Return the text with every secret replaced by `***`. `mask_known` masks known secrets."""
    text = _mask_words(_mask_blocks(mask_known(text)), suspicion)
    return _mask_announced(text, _hide) if _QUICK.search(text) is not None else text


def mask_certain(text: str, mask_known: Mask) -> str:
    """Return the text with only certain secrets masked, for a person who approves the text.

    Random words are not masked. Only plain words are, so nothing that a shell could run is hidden.
    """
    text = _mask_blocks(mask_known(text))
    text = _WORD.sub(lambda found: secret_pattern().sub(MASK, found[0]), text)
    return _mask_announced(text, _hide_plain) if _QUICK.search(text) is not None else text


def is_plain_word(value: str) -> bool:
    """Return whether a value is one word without shell syntax."""
    return _PLAIN_WORD.fullmatch(value) is not None


def _hide(value: str) -> str:
    return value if stands_for_secret(value) else MASK


def _hide_plain(value: str) -> str:
    return MASK if is_plain_word(value) and not stands_for_secret(value) else value


def _mask_blocks(text: str) -> str:
    return block_pattern().sub(MASK, text) if "-----BEGIN" in text or "PuTTY-" in text else text


def is_ordinary(word: str, suspicion: Suspicion) -> bool:
    """Return whether a long word contains nothing to mask. Caches ordinary words, which are frequent."""
    ordinary = _ORDINARY[suspicion]
    if word in ordinary:
        return True
    if _masked_word(word, suspicion) != word:
        return False
    if len(ordinary) >= _MOST_ORDINARY:
        ordinary.clear()
    ordinary.add(word)
    return True


def _mask_words(text: str, suspicion: Suspicion) -> str:
    return _WORD.sub(
        lambda found: found[0] if is_ordinary(found[0], suspicion) else _masked_word(found[0], suspicion), text
    )


def _mask_announced(text: str, hide: Mask) -> str:
    """Mask values that a name, flag, scheme or place in a URL marks as secret."""
    keep_lead = partial(_keep_lead, hide)
    if "://" in text or "hooks." in text or "webhook" in text:
        text = webhook_pattern().sub(keep_lead, text)
        text = _LOGIN.sub(keep_lead, text)
        text = _QUERY.sub(partial(_mask_parameter, hide), text)
    text = _AFTER_SCHEME.sub(partial(_mask_credential, hide), text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(partial(_mask_assigned, hide), text)
    if "-" in text:
        text = _FLAG.sub(partial(_mask_flag, hide), text)
        text = _PASSWORD_FLAG.sub(keep_lead, _USER.sub(keep_lead, text))
    return text


def _keep_lead(hide: Mask, found: re.Match[str]) -> str:
    last = found.lastindex or 0
    return f"{found[last - 1]}{hide(found[last])}"


def _mask_credential(hide: Mask, found: re.Match[str]) -> str:
    return _keep_lead(hide, found) if is_credential(found[found.lastindex or 0]) else found[0]


def _mask_assigned(hide: Mask, found: re.Match[str]) -> str:
    name, sign, quote, quoted, bare = found.groups()
    value: str = quoted or bare
    scheme, blank, rest = value.partition(" ")
    if value.startswith("//") or MASK in value or not is_secret_of(name.rpartition(".")[2], value):
        return found[0]
    if is_code(name.rpartition(".")[2], value, is_quoted=quoted is not None):
        return found[0]
    is_count_of = is_count(name) and re.fullmatch(r"[\d.]+", value) is not None
    if is_count_of or value.lower() in SCHEMES or found.string[found.end() : found.end() + 1] in ("(", "["):
        return found[0]
    has_scheme = bool(blank) and scheme.lower() in SCHEMES
    return f"{name}{sign}{quote or ''}{f'{scheme} {hide(rest)}' if has_scheme else hide(value)}"


def _mask_parameter(hide: Mask, found: re.Match[str]) -> str:
    mark, name, value = found.groups()
    return f"{mark}{name}={hide(value)}" if is_secret_parameter(name, value) else found[0]


def _mask_flag(hide: Mask, found: re.Match[str]) -> str:
    flag, sign, value = found.groups()
    if value == MASK or value.lower() in SCHEMES or not announces_secret(flag):
        return found[0]
    return f"{flag}{sign}{hide(value)}"


def _masked_word(word: str, suspicion: Suspicion) -> str:
    """Return a long word with secrets masked; parts of a path or an assignment are checked separately."""
    word = secret_pattern().sub(MASK, word)
    if "%" in word:
        plain = unquote(word)
        parts = (plain, *re.split(r"[/=:|\s]", plain))
        return MASK if any(is_secret_word(part, suspicion) for part in parts) else word
    if "." not in word and word[0] not in "/~" and is_secret_word(word, suspicion):
        return MASK
    return _PART.sub(lambda part: MASK if _is_secret_part(part, suspicion) else part[0], word)


def _is_secret_part(part: re.Match[str], suspicion: Suspicion) -> bool:
    """Return whether a part of a word is a secret. A labelled digest such as `sha256:…` is not."""
    return is_secret_word(part[0], suspicion) and _DIGEST_LABEL.search(part.string, 0, part.start()) is None
