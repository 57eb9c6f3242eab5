"""Masks the secrets in a URL: login, query, fragment, and parts of the path."""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from toolcrib.base.masking import MASK
from toolcrib.base.masking.kinds import secret_pattern, webhook_pattern
from toolcrib.base.masking.words import Suspicion, is_secret_name, is_secret_parameter, is_secret_word

_GIT: Final = re.compile(r"(?:^|[+.])git(?:$|[+.])|github\.com|gitlab\.com|bitbucket\.org|codeberg\.org", re.IGNORECASE)
_REVISION: Final = re.compile(r"[0-9a-f]{7,40}")
_ANCHOR: Final = re.compile(r"[A-Za-z][\w./-]{0,60}")


def _mark(_: str) -> str:
    return MASK


def _never(_: str) -> bool:
    return False


def mask_url(url: str, hide: Callable[[str], str] = _mark, is_shown: Callable[[str], bool] = _never) -> str:
    """Return a URL without its secrets. `hide` masks one; values for which `is_shown` is true (references) stay."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return hide(url)
    shown = _Shown(hide, is_shown, _GIT.search(url) is not None)
    if found := webhook_pattern().match(f"{parts.netloc}{parts.path}?"):
        host, _, path = found[1].partition("/")
        return urlunsplit((parts.scheme, host, f"/{path}{hide(found[2].rstrip('?'))}", "", ""))
    login, at, host = parts.netloc.rpartition("@")
    login = login if not at or is_shown(login) else hide("")
    path = "/".join(map(shown.part, parts.path.split("/")))
    listed = "&".join(f"{shown.word(name)}={shown.parameter(name, value)}" for name, value in query)
    fragment = shown.fragment(parts.fragment)
    return urlunsplit((parts.scheme, f"{login}{at}{host}", path, listed or shown.word(parts.query), fragment))


class _Shown:
    """Masks the parts of one URL."""

    def __init__(self, hide: Callable[[str], str], is_shown: Callable[[str], bool], is_git: bool) -> None:
        self._hide = hide
        self._is_shown = is_shown
        self._is_git = is_git

    def part(self, part: str) -> str:
        """Return a part of the path, masked; the pieces of `name@version` or `matrix;a=b` are checked separately."""
        if self._is_whole(part):
            return self.word(part)
        return re.sub(r"[^@;,=:]+", lambda piece: self.word(piece[0]), part)

    def _is_whole(self, part: str) -> bool:
        plain = unquote(part)
        found = secret_pattern().match(plain)
        return found is not None and found.end() >= min(len(plain), 12)

    def word(self, word: str) -> str:
        """Return a word, masked if it is a secret."""
        plain = unquote(word)
        if not plain or self._is_shown(plain) or (self._is_git and _REVISION.fullmatch(plain)):
            return word
        pieces = (plain, *re.split(r"[/|:\s]", plain)) if re.search(r"[/|:\s]", plain) else (plain,)
        return self._hide(plain) if any(is_secret_word(piece, Suspicion.SETTING) for piece in pieces) else word

    def parameter(self, name: str, value: str) -> str:
        """Return the value of a parameter, masked if it is a secret."""
        if not value or self._is_shown(value):
            return value
        is_secret = is_secret_parameter(name, value) or self.word(value) != value
        return self._hide(value) if is_secret else value

    def fragment(self, fragment: str) -> str:
        """Return a fragment, masked unless it is a plain anchor."""
        if not fragment:
            return ""
        is_plain = _ANCHOR.fullmatch(fragment) is not None and self.word(fragment) == fragment
        return fragment if is_plain and not is_secret_name(fragment) else self._hide(fragment)
