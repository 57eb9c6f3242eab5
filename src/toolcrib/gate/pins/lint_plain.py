"""Checks that the text of an added argument is plain: short, a description and nothing else.

An argument added later needs a name and half a sentence. Text that addresses its reader, names addresses or paths, or
cannot be judged by the lint departs from that and needs a person's review.

Pure. Must never accept a text as plain because it cannot be read.
"""

import re
from typing import Final

LONGEST: Final = 300
_LONGEST_NAME = 64
_MOST_WORDS = 5
_WORDS_JUDGED = 7
"""From this number of words on, a text must be recognisable as English."""

_IDENTIFIER = re.compile(rf"[A-Za-z_$@][\w.$@-]{{0,{_LONGEST_NAME - 1}}}", re.ASCII)
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_.-]+")
_LATIN = re.compile(r"[\x00-\u024f\u1e00-\u1eff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u22ff\u2500-\u25ff]*")
_WORD = re.compile(r"[A-Za-zÀ-ɏ']+")
_ADDRESS = re.compile(
    r"""[a-z][a-z0-9+.-]{1,20}:// | \bwww\. | [\w.+-]{1,40}@[\w-]{1,40}\.\w | \b\d{1,3}(?:\.\d{1,3}){3}\b
      | (?:^|[\s"'`(=])(?:~|\.{1,2})?/[\w.~-]+ | \b[A-Z]:\\ | \$[A-Z_]{2,} | \$\( | \$\{""",
    re.VERBOSE | re.IGNORECASE,
)
_ADDRESSES_READER = re.compile(
    r"""\b(?:you|your|yours|yourself|must(?!\ (?:be|match)\b)|always|never|ignore[sd]?|disregard|override[sn]?|instead
        |important|critical|urgent|urgently|mandatory|attention|warning|assistants?|llms?|claude|chatgpt|copilot|conversations?
        |instructions?|instructed|prompts?|secret|secrets|secretly|bypass|attackers?|silently|pretend|obey|immediately
        |verbatim|everything|ensure|please|remember|confidential|password|credentials?|jailbreak|admin|sudo
        |leak|steal|bcc|wallet|transcript|tools?|behalf|respond|agents?|ai|consent\w{0,3}|pre-?approved|confirmation
        |personal|credit\ card|invoked|trusted|grant|compliance|routed|previous\ messages?|dot\ env|env\ files?)\b
      | \b(?:do\ not|don[’']t|make\ sure|be\ sure|has\ to|have\ to|needs?\ to|is\ required|are\ required|in\ order)\b
      | \b(?:before|after|when|whenever|while)\ (?:using|calling|running|any|responding|answering|every|each)\b
      | \b(?:and|also|then|first)\ (?:call|send|read|run|forward|upload|execute|invoke|copy|paste|e-?mail|delete)\b
      | (?:^|[.;:!]\s)\W{0,3}(?:store|extract|change|modify|write|submit|transfer|disable|skip|approve|collect|gather
            |dump|note)\b
      | ^\W{0,3}(?:call|send|read|forward|upload|execute|invoke|copy|paste|e-?mail|delete|provide|insert|fill)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CAPITALS = re.compile(r"\b[A-Z]{3,}(?:\s+[A-Z]{2,}){2,}\b")
_COMMON = re.compile(
    r"""\b(?:an?|and|are|as|at|be|by|default|each|false|for|from|how|if|in|is|its?|list|many|max|maximum|min|minimum|name
        |no|not|number|of|on|one|only|or|out|per|results?|returns?|returned|set|than|that|the|this|to|true|up|used?|value
        |what|when|where|whether|which|with)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that almost every English sentence contains."""
_WORDS_PER_COMMON = 9
"""Maximum words per common one. Other languages share a few of these words."""
_FOREIGN = re.compile(
    r"""\b(?:und|oder|der|das|den|dem|eine[mnrs]?|mit|nicht|bitte|f[uü]r|von|zum|zur|hier|ihre[mnrs]?|vorher|immer|datei|inhalt
        |le|les|une|du|et|est|dans|pour|avec|votre|vos|vous|cette|fichier|contenu|veuillez|toujours|avant
        |el|los|las|una|y|con|para|por|su|sus|este|esta|archivo|contenido|siempre|antes|primero|usuario
        |il|lo|gli|della?|delle|nel|che|questo|questa|contenuto|sempre|prima
        |o|os|uma|com|n[aã]o|seu|sua|arquivo|conte[uú]do
        |het|een|en|van|voor|niet|met|deze|bestand|inhoud|altijd|eerst
        |och|att|inte|f[oö]r|med|som|av|til|ikke|og|den|plik|oraz|jest|przed|zawarto[sś][cć]|dosya|ve|bir)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Frequent words of other languages that do not occur in English descriptions."""


def departure(text: str, *, is_name: bool) -> str | None:
    """Return in which way a text is not plain, or None if it is."""
    if is_name:
        return _unplain_name(text)
    if len(text) > LONGEST:
        return f"is longer than {LONGEST} characters"
    if _LATIN.fullmatch(text) is None:
        return "is in a script that cannot be checked"
    if _ADDRESS.search(text):
        return "contains an address, a path or a variable"
    if speaks_to_reader(text):
        return "addresses the reader"
    return "is in a language that cannot be checked" if _is_foreign(text) else None


def speaks_to_reader(text: str) -> bool:
    """Return whether a text addresses its reader, or shouts."""
    return _ADDRESSES_READER.search(text) is not None or _CAPITALS.search(text) is not None


def _is_foreign(text: str) -> bool:
    """Return whether a text is, or may be, in a language other than English."""
    words = len(_WORD.findall(text))
    common = len(_COMMON.findall(text))
    if words >= _WORDS_JUDGED and common * _WORDS_PER_COMMON < words:
        return True
    return len(_FOREIGN.findall(text)) > common


def _unplain_name(name: str) -> str | None:
    """Check a name as an identifier, and the words it consists of."""
    if _IDENTIFIER.fullmatch(name) is None:
        return "is not a plain name"
    words = _WORD_BOUNDARY.sub(" ", name).strip()
    if len(words.split()) > _MOST_WORDS:
        return f"is a name of more than {_MOST_WORDS} words"
    return "is a name that addresses the reader" if _ADDRESSES_READER.search(words) else None
