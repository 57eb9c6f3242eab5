"""Classifies names of fields, arguments, variables, headers, flags and parameters as secret or not.

`is_secret_name`: every value of this name is a secret. `may_be_secret`: it depends on the value (`key`, `sig`).
`is_identifier`: values are ids or digests, even if they look random.
"""

import re
from typing import Final

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
