"""What a record shows of a call's arguments: secrets masked, size bounded.

A reader learns what was asked for; the digest beside it stands for the exact arguments. Most arguments are small and
plain, and are told from others by looking for a few words in their bytes. It must never take longer for large arguments
than for what it shows of them, and never change what the tool is given.
"""

import re
from collections.abc import Sequence

import orjson

from toolcrib.model.json import Json, JsonObject, is_array, is_object

LIMIT = 8 * 1024
"""Bytes of JSON shown at most, markers aside."""
MASK = "***"
CUT = "…"
_DEEPEST = 32
_AROUND = 4
"""Bytes of brackets, quotes, colon and comma around a value."""
_OVERLAP = 4096
"""Characters looked at beyond what is shown, so that a secret on the edge is still seen as one."""

_SECRET = r"passw|passphrase|pwd|secret|token|cookie|credential|auth(?!or(?!i[sz]))|(?:api|access|private)[-_. ]?key"
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE | re.ASCII)
_COUNT_NAME = re.compile(r"tokens", re.IGNORECASE | re.ASCII)

# Every repetition is bounded or cannot be tried in two ways: the texts come from outside.
_CREDENTIAL = re.compile(
    r"""
      -----BEGIN[ A-Z0-9]*PRIVATE[ ]KEY-----.*?(?:-----END[ A-Z0-9]*PRIVATE[ ]KEY-----|\Z)
    | tcb_[\w-]{16,}
    | \b(?:sk|rk|pk)[-_][\w-]{16,}
    | \b(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|xox[a-z]-)[\w-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    | \beyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*
    | (?<![\w-])(?=[\w-]{43}(?![\w-]))(?=[\w-]{0,42}[a-z])(?=[\w-]{0,42}[A-Z])[\w-]{43}
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_AFTER = re.compile(
    rf"""
      (\bbearer\s+)[^\s"']+
    | (\bbasic\s+)(?-i:(?=\S*(?:[a-z][A-Z]|[0-9=])))[\w+/=-]{{8,}}
    | (://[^/\s:@]*:)[^/\s@]+(?=@)
    | ((?:{_SECRET})[\w-]{{0,32}}["'\\]{{0,4}}\s{{0,4}}[:=]\s{{0,4}}["'\\]{{0,4}})(?!bearer\b|basic\b)[^\s"'\\&,;]+
    | ((?<![\w-])--[\w-]{{0,32}}(?:{_SECRET})[\w-]{{0,32}}\s+)[^\s"'\\]+
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_SUSPECT = re.compile(
    rb"p(?:ass|wd|k[-_]|ypi-)|s(?:ecret|k[-_])|t(?:oken|cb_)|c(?:ookie|red)|a(?:uth|kia|sia|iza)|key|b(?:earer|asic)"
    rb"|://|rk[-_]|g(?:h[pousr]_|ithub_|lpat-)|npm_|hf_|xox|eyj"
)
"""What every secret the patterns know has in its lower-case bytes, but for those that have no words in them."""
_IN_RUNS = bytes.maketrans(
    bytes(range(256)), bytes(120 if re.match(rb"[\w-]", bytes((n,))) else 32 for n in range(256))
)
_RUN = b"x" * 43
"""256 random bits as the owner's token writes them have so many characters and nothing else to be known by."""


def shown(arguments: Json, canonical: bytes) -> bytes:
    """The JSON to show of these arguments; `canonical` is theirs."""
    if len(canonical) <= LIMIT and not _is_suspect(canonical):
        return canonical
    return orjson.dumps(_Excerpt().of(arguments))


def _is_suspect(canonical: bytes) -> bool:
    return _SUSPECT.search(canonical.lower()) is not None or canonical.translate(_IN_RUNS).find(_RUN) >= 0


def mask(text: str) -> str:
    """The text with whatever looks like a credential masked."""
    return _AFTER.sub(_keep_lead, _CREDENTIAL.sub(MASK, text))


def _keep_lead(found: re.Match[str]) -> str:
    return f"{found[found.lastindex or 0]}{MASK}"


class _Excerpt:
    """Walks a value until enough of it is shown."""

    def __init__(self) -> None:
        self._left = LIMIT

    def of(self, value: Json, depth: int = 0) -> Json:
        """What is shown of one value."""
        self._left -= _AROUND
        if value is None or isinstance(value, (bool, int, float)):
            self._left -= len(str(value))
            return value
        if is_object(value):
            return self._object(value, depth + 1) if depth < _DEEPEST else CUT
        if is_array(value):
            return self._array(value, depth + 1) if depth < _DEEPEST else CUT
        return self._text(value if isinstance(value, str) else str(value))

    def _object(self, value: JsonObject, depth: int) -> JsonObject:
        shown: JsonObject = {}
        for name, item in value.items():
            if self._left <= 0:
                shown[CUT] = f"{len(value) - len(shown)} more"
                break
            shown[self._text(name)] = self.of(MASK if _is_secret(name, item) else item, depth)
        return shown

    def _array(self, value: Sequence[Json], depth: int) -> list[Json]:
        shown: list[Json] = []
        for item in value:
            if self._left <= 0:
                shown.append(f"{CUT} {len(value) - len(shown)} more")
                break
            shown.append(self.of(item, depth))
        return shown

    def _text(self, text: str) -> str:
        room = max(self._left, 0)
        masked = piece = mask(text[: room + _OVERLAP])
        while (size := len(orjson.dumps(piece))) > room + 2:
            piece = piece[: len(piece) * room // size]
        self._left -= size + 1
        hidden = len(masked) - len(piece) + max(len(text) - room - _OVERLAP, 0)
        return f"{piece}{CUT} {hidden} more characters" if hidden else piece


def _is_secret(name: str, value: Json) -> bool:
    """Whether a value is a secret because of its name. Numbers of tokens are counts."""
    if value is None or isinstance(value, bool) or _SECRET_NAME.search(name) is None:
        return False
    return not (isinstance(value, (int, float)) and _COUNT_NAME.search(name))
