"""Classifies names and single words as secret, and words of a command line by the preceding word.

Names are those of fields, arguments, variables, headers, flags and parameters. `is_secret_name`: every value of this
name is a secret. `may_be_secret`: it depends on the value (`key`, `sig`). `is_identifier`: values are ids or digests,
even if they look random.

The threshold depends on the place. In free text, ids and digests are ordinary; as the value of a field, only those of a
usual form are; in a setting (an argument or the URL of a server), everything random is hidden.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from toolcrib.base.masking.kinds import secret_pattern
from toolcrib.base.masking.randomness import gained_bits, is_random

_STRONG: Final = (
    r"passw|passphrase|passcode|pwd|secret|token|cookie|credential|creds\b|bearer|\bjwt|auth(?!or(?!i[sz]))"
    r"|(?:api|access|private|account|signing|signature|encryption|encrypt|master|shared|storage|subscription|licen[sc]e"
    r"|service|client|consumer|session|ssh|gpg|pgp|rsa|deploy|admin|root|user|app|application|write|read|host|function"
    r"|webhook|recovery|instrumentation|management|server)[-_. ]?key(?![a-z])"
    r"|connection[-_. ]?string|webhook[-_. ]?(?:ur[il]|secret)"
)
_SECRET: Final = re.compile(_STRONG, re.IGNORECASE | re.ASCII)
_OTHER_KEY: Final = re.compile(r"(?:[-_. ][Kk][Ee][Yy]|(?<=[a-z0-9])Key)$", re.ASCII)
_ORDINARY_KEY: Final = re.compile(
    r"(?:^|[-_. ])(?:sort|order|primary|foreign|partition|object|cache|issue|project|public|pub|hot|group|row|range"
    r"|hash|idempotency|press|s3|config|setting|metadata|item|map|dict|lookup|translation|i18n|event|file|node|column"
    r"|field|index|table|record|state|store|short|natural|composite|unique|parent|child|epic|board|space|team|component"
    r"|prefix|next|prev|start|end|last|min|max|routing|document|doc|blob|tag|label|property|attribute|option|param|json"
    r"|type|category|theme|style|modifier|arrow|return|enter|any|the|is|has|with|by|on|name|value|registry|reg|answer)"
    r"[-_. ]?key$",
    re.IGNORECASE | re.ASCII,
)
_ABOUT: Final = re.compile(
    r"(?:[-_. ]?(?:counts?|limits?|lengths?|sizes?|types?|kinds?|enabled|required|policy|method|mode|expir\w+|ttl"
    r"|budget|usage|used|max|min|total|per[-_. ]\w+|index|indices|ids?|names?|paths?|files?|level|status|scheme"
    r"|provider|format|version|endpoint|ur[il]|scopes?|server))$",
    re.IGNORECASE | re.ASCII,
)
"""Endings of names that describe a secret but are not one: `token_count`, `secret_name`, `auth_type`."""
_WEAK: Final = re.compile(
    r"^(?:x[-_])?key$|^sig$|[-_.]sig$|signature|private|\bpat\b|[-_]pat$|\bdsn\b|database[-_]?ur[il]|webhook"
    r"|\bpin\b|[-_]pin$|\botp\b|[-_]otp$|\bsas\b|[-_]sas$|mnemonic|^pass$"
    r"|[-_]pass$|^auth(?!or(?:s|ed|ity|ship)?$)\w*$|\bid[-_]?token",
    re.IGNORECASE | re.ASCII,
)
_CHOSEN: Final = re.compile(
    r"pass(?:w|phrase|code|$)|pwd|secret|\bpin\b|[-_]pin$|\botp\b|[-_]otp$|mnemonic", re.IGNORECASE | re.ASCII
)
_SETTING: Final = re.compile(r"session|_headers$|(?:^|[-_])pw$|(?:^|[-_])cert(?:ificate)?$", re.IGNORECASE | re.ASCII)
_COUNT: Final = re.compile(r"tokens", re.IGNORECASE | re.ASCII)
_IDENTIFIER: Final = re.compile(
    r"(?:^|[-_. /]|(?<=[a-z0-9])(?=[A-Z]))(?:[Ii][Dd]s?|[Uu][Uu]?[Ii][Dd]s?|guids?|ulids?|arns?|sha\d*|commits?"
    r"|hash(?:es)?|digests?|checksums?|md5|etags?|revs?|revisions?|refs?|oids?|fingerprints?|cursors?|versions?|cid|txid|slug"
    r"|Ids?|ID|Hash|Digest|Sha\d*|Ref|Commit|Rev|Revision|Cursor|Checksum|Version)(?:[-_. ]|$)"
    r"|^(?:id|uuid|page|node|object|tree|blob|parent|head|base|from|to|since|until|before|after|image|container|span"
    r"|trace|block|database|document|doc|file|fileKey|file_key|spreadsheet|sheet|thread|message|event|resource"
    r"|transaction|tx|address|account|wallet|hex|color|colour|integrity)$",
)


def is_secret_name(name: str) -> bool:
    """Return whether every value of this name is a secret."""
    if _SECRET.search(name) is not None:
        return _ABOUT.search(name) is None
    return _OTHER_KEY.search(name) is not None and not is_ordinary_key(name)


def may_be_secret(name: str) -> bool:
    """Return whether a value of this name is a secret unless it is clearly something else."""
    return _WEAK.search(name) is not None and _ABOUT.search(name) is None


def is_chosen_by_people(name: str) -> bool:
    """Return whether people choose values of this name, so that any word may be one. Tokens and keys are issued."""
    return _CHOSEN.search(name) is not None


def is_secret_setting(name: str) -> bool:
    """Return whether a variable, header, flag or parameter of a server must be hidden because of its name."""
    if _SECRET.search(name) is not None or _WEAK.search(name) is not None or _SETTING.search(name) is not None:
        return True
    return _OTHER_KEY.search(name) is not None


def is_count(name: str) -> bool:
    """Return whether a number of this name is a count of model tokens."""
    return _COUNT.search(name) is not None


def is_identifier(name: str) -> bool:
    """Return whether values of this name are ids, digests or revisions."""
    return _IDENTIFIER.search(name) is not None


def is_ordinary_key(name: str) -> bool:
    """Return whether this is a key of a database, a map or a keyboard."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _ORDINARY_KEY.search(parted) is not None


class Suspicion(Enum):
    """Where a word occurs, from the least to the most suspicious place."""

    TEXT = 1
    VALUE = 2
    SETTING = 3


SHORTEST_FORM: Final = 12
"""Shorter words are never secrets by form."""
_NO_SECRET: Final = re.compile(
    r"""
      \$(?:[A-Z_][A-Z0-9_]*|[a-z_]+|[{(].*|env:\w+) | \{.*\} | <[^<>]*> | %\w+%         # references, templates
    | (?i: your[-_ ].* | .*[-_]here | redacted | changeme | \*+ | x{3,} | \.{3} | … )  # what stands for a secret
    | (?i: none|null|nil|true|false|undefined|yes|no|on|off|str|string|bytes|int|bool|object|any|optional|required|final
        |await|self|os|env|is|and|or|not|the|a|an|to|in|of|for|with|from|must|can|will|has|was|token|tokens|auth|secret
        |authentication|password|error|expired|invalid|missing|unknown|oauth|oauth2|basic|bearer|\| )
    | [a-z_]+(?:\.[a-z_]+)+ | [A-Za-z_]+\(.*                                          # code
    """,
    re.VERBOSE | re.DOTALL,
)
"""Values that follow the name of a secret but are not secret."""
_CODE_WORD: Final = re.compile(
    r"[!@$^~*&%(-]*[A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->|-|/)[A-Za-z_$][\w$]*)*[?!*]*", re.ASCII
)
"""A name in source text: a variable, an attribute, a type, a package."""
_CODE_NUMBER: Final = re.compile(r"[-!]?\d{1,6}|[\^~<>=v]*\d{1,5}(?:\.[\dx*]{1,8}){1,3}(?:[-+][\w.]{1,20})?", re.ASCII)
"""A small number or a version."""
_NUMBERED_NAME: Final = re.compile(r"[._/:]|[a-z][A-Z]|^[A-Za-z]+\d$", re.ASCII)
"""In a word with digits: what shows that it is a name of several parts, or one with a number."""
_ONE_DIGIT_LAST: Final = re.compile(r"[a-z]{3,8}\d", re.ASCII)
_TEMPLATE: Final = re.compile(r"[$#]?\{[^{}]*\}?")
_PUNCTUATION: Final = re.compile(r"[\W_]*", re.ASCII)
_NAME_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", re.ASCII)
SCHEMES: Final = ("bearer", "basic", "token", "apikey", "digest", "negotiate")
"""Words before the credential in a header."""
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_USUAL_UUID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
"""A UUID as in RFC 9562, with a version and a variant."""
_HEX: Final = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_HEX_PART: Final = re.compile(
    r"(?<![A-Za-z0-9])(?=(?:[0-9a-f]{6,17}|[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})(?![A-Za-z0-9]))[0-9a-f]+"
)
"""A digest or an id as part of a word, by length."""
_USUAL_HEX: Final = frozenset({40, 48, 56, 96, 128})
"""Lengths of digests that are ordinary as a whole value: git revisions, and longer ones."""
_SHORTEST_HEX: Final = 20
_SHORTEST_HEX_VALUE: Final = 30
_ODD_BITS: Final = 3.0
_ODD_SIGNS: Final = re.compile(r"[!@#$%^&*?]")
_KEY_PARAMETERS: Final = frozenset({"key", "sig", "signature", "sas", "code", "auth", "pass"})
_MIXED: Final = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[\w+=%~-]{8,}", re.ASCII)
_KEYED: Final = re.compile(r"[A-Za-z0-9+/]{36,90}={0,2}")
_PLAIN_FLAG: Final = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_USER: Final = frozenset({"-u", "-U", "--user", "--proxy-user", "--basic-auth", "--userpwd", "--http-user"})
_PASSWORD_PROGRAMS: Final = re.compile(
    r"(?:^|[/\\])(?:mysql\w*|mariadb[\w-]*|sshpass|mongo\w*|7z\w?|unzip|zip|smbclient|ldap\w+|cqlsh|isql|sqlcmd|clickhouse"
    r"[\w-]*)$"
)


def is_secret_word(word: str, suspicion: Suspicion) -> bool:
    """Return whether a word without blanks is a secret, by form or randomness."""
    if len(word) < SHORTEST_FORM:
        return False
    found = secret_pattern().match(word)
    if found is not None and found.end() - found.start() >= min(len(word), 12):
        return True
    if _HEX.fullmatch(word) is not None:
        return _is_secret_hex(word, suspicion)
    if _UUID.fullmatch(word) is not None:
        return suspicion is Suspicion.SETTING or (suspicion is Suspicion.VALUE and _USUAL_UUID.fullmatch(word) is None)
    if is_random(word if suspicion is Suspicion.SETTING else _HEX_PART.sub("", word)):
        return True
    return _KEYED.fullmatch(word) is not None and is_random(re.sub(r"[+/=]", "", word))


def _is_secret_hex(word: str, suspicion: Suspicion) -> bool:
    if suspicion is Suspicion.TEXT or word.isdigit():
        return False
    if suspicion is Suspicion.VALUE and (len(word) in _USUAL_HEX or len(word) < _SHORTEST_HEX_VALUE):
        return False
    return len(word) >= _SHORTEST_HEX and is_random(word)


def is_odd(word: str) -> bool:
    """Return whether a value with a possibly secret name is not an ordinary word: `key=hunter2x`, `sig=…`."""
    if len(word) < 6 or re.search(r"\s", word) is not None or not word.isascii():
        return False
    return (
        _ODD_SIGNS.search(word) is not None
        or is_secret_word(word, Suspicion.SETTING)
        or (not word.isdigit() and gained_bits(word) > _ODD_BITS)
    )


def is_secret_parameter(name: str, value: str) -> bool:
    """Return whether a URL parameter is a secret, by its name or because it looks like a key."""
    if is_secret_name(name):
        return True
    return name.lower() in _KEY_PARAMETERS and (is_odd(value) or _MIXED.fullmatch(value) is not None)


def is_secret_of(name: str, value: str) -> bool:
    """Return whether a text is a secret, by its name or by its name and form."""
    return is_secret_name(name) or (may_be_secret(name) and not is_ordinary_key(name) and is_odd(value))


def stands_for_secret(value: str) -> bool:
    """Return whether a value is only a placeholder for a secret: a reference, a template, a word of prose or code."""
    return _NO_SECRET.fullmatch(value) is not None


def is_code(name: str, value: str, *, is_quoted: bool) -> bool:
    """Return whether an assigned value is part of source text: `token = next_token`, `"limit_key": "max_results"`.

    Issued secrets are random, so ordinary words are not among them. A password may be any word: only a name that
    contains that of a secret, such as `password = read_password`, is code.
    """
    if _PUNCTUATION.fullmatch(value) is not None or value[0] in ",)]}":
        return True  # after a closing quote: `log("token:", token)`
    if not is_chosen_by_people(name):
        plain = _TEMPLATE.sub("", value)
        return all(_is_ordinary_word(word) for word in re.split(r"[\s;:=,&|]+", plain) if word)
    if is_quoted or not value.isascii() or any(map(str.isdigit, value)) or _CODE_WORD.fullmatch(value) is None:
        return False
    parts = _NAME_PART.findall(value)
    is_named_so = len(parts) == 1 and value.lower() in {part.lower() for part in _NAME_PART.findall(name)}
    return is_named_so or "." in value or (len(parts) > 1 and any(map(is_secret_name, parts)))


def _is_ordinary_word(word: str) -> bool:
    if _PUNCTUATION.fullmatch(word) is not None or _CODE_NUMBER.fullmatch(word) is not None:
        return True
    if _CODE_WORD.fullmatch(word) is None or secret_pattern().search(word) is not None:
        return False
    if any(map(str.isdigit, word)) and _NUMBERED_NAME.search(word) is None:
        return False  # a simple password: `hunter22`
    return all(not is_odd(part) for part in re.split(r"[^\w-]+", word) if _ONE_DIGIT_LAST.fullmatch(part) is None)


def is_credential(value: str) -> bool:
    """Return whether the word after `Bearer` or `Basic` is a credential and not a word of prose."""
    word = value.rstrip(".:!)`*")
    if word.endswith("=") and word[:-1].islower():
        word = word[:-1]  # a parameter of a challenge: `realm=`
    return (len(word) == 1 and word.isalnum()) or not _is_ordinary_word(word)


def announces_secret(word: str) -> bool:
    """Return whether the next word is a secret: after a flag such as `--token`, or the name of a header."""
    if word.endswith(":"):
        return re.search(r"\s", word) is None and is_secret_name(word[:-1])
    if _PLAIN_FLAG.fullmatch(word) is None:
        return False
    name = word.lstrip("-")
    return is_secret_name(name) or name in ("key", "pass", "pat", "pin", "otp", "sig", "auth", "session", "dsn")


def announced(words: Sequence[str]) -> dict[int, int]:
    """Return the words of a command line that are secrets because of another word: index to first secret character."""
    found: dict[int, int] = {}
    asks_password = any(_PASSWORD_PROGRAMS.search(word) for word in words[:4])
    expects = False
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        is_flag = word.startswith("-") and not is_secret_word(word.lstrip("-"), Suspicion.SETTING)
        is_value = not is_flag and not word.startswith(("$", "{")) and word.lower() not in SCHEMES
        if expects and is_value:
            found[index] = 0
        elif before in _USER and (start := password_start(word)):
            found[index] = start
        elif (attached := attached_password(word, asks_password)) or (before == "-p" and asks_password and is_value):
            found[index] = attached
        expects = announces_secret(word) or (expects and word.lower() in SCHEMES)
    return found


def password_start(word: str) -> int:
    """Return where the password starts in `user:password`; 0 if there is none. `1000:1000` is a user and a group."""
    user, colon, password = word.partition(":")
    is_login = bool(colon) and len(password) >= 3 and not password.isdigit() and not password.startswith("//")
    return len(user) + 1 if is_login and "/" not in user else 0


def attached_password(word: str, asks_password: bool) -> int:
    """Return where the password starts in `-ppassword`; 0 if there is none."""
    if not word.startswith("-p") or len(word) < 6 or re.fullmatch(r"-p[\d:.]+(?:/\w+)?", word) is not None:
        return 0
    value = word[2:]
    is_mixed = re.search(r"\d", value) is not None and (_ODD_SIGNS.search(value) or re.search(r"[A-Z]", value))
    return 2 if asks_password or (is_mixed and is_odd(value)) else 0
