"""Tells text that does something from text that describes it: quotations, labels of examples, tools for protection.

A guardrail that detects "ignore previous instructions" has to name the phrase. Only signs that are mere phrases are
discounted; a text that also names a file, an address or an action of its own keeps the signs of these.

Pure and bounded.
"""

import re

_SENTENCE = 240
"""Characters before a match that are searched for the beginning of its sentence."""
_QUOTATION = 60
"""Maximum characters between a match and the quotation marks around it."""
_BARE = 2
_BOUNDARY = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s)|\n")
_OPENING = "'\"“‘`«「"
_CLOSING = "'\"”’`»」"
_QUOTES = re.compile(r"\s['\"“‘`«]")
_DESCRIBES = re.compile(
    r"""\b(?:detect|check|analy[sz]|scan|find|identif|flag|block|prevent|filter|classif|recogni[sz]|test|report|guard
                |protect
        |reject|screen|inspect|evaluat|explain|describ|document|simulat|catch|refus|stop|defend|sanitiz|warn|score|label
        |illustrat|demonstrat|lint|validat|teach|stud(?:y|ies)|review|audit|monitor|look)(?:s|es|ed|ing|ies|y|e|ion
                |ions|er|or|rail|ation)?\b""",
    re.VERBOSE | re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"""\b(?:prompts?|texts?|inputs?|messages?|attempts?|phrases?|tools?|requests?|content|documents?|whether|when|if
                |that|which|how
        |strings?|jailbreaks?|attacks?|injections?|patterns?|such\ as|like|e\.g|descriptions?|attackers?
                |malicious)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_TURNS = re.compile(
    r"[;:—–]|\b(?:then|you\ (?:must|should|need|have)|please|also|but|now|must|afterwards)\b", re.IGNORECASE
)
"""Words with which a sentence stops describing and begins to order."""
_LABEL = re.compile(
    r"""\b(?:expected|mock|sample|example|training|test|canned|illustrative|fixture|adversarial|known|forbidden|blocked
                |simulated|stub|dummy
            |demo|placeholder|golden|recorded|synthetic|attack|injection|trigger|reference|dataset)\s
        (?:\w{1,16}\s)?(?:outputs?|responses?|reply|replies|texts?|inputs?|prompts?|strings?|content|messages?|data
                |phrases?|payloads?
            |answers?|cases?|fixtures?|completions?|transcripts?|values?|lines?|results?|quer(?:y|ies))\s{0,2}[:=]
      | \b(?:examples?|samples?|fixtures?)\s{0,2}:""",
    re.VERBOSE | re.IGNORECASE,
)
_QUOTING = re.compile(
    r"""\b(?:returns?|emits?|generates?|produces?|contains?|containing|match(?:es|ing)?|counts?|lists?|stores?
                |highlights?|removes?|strips?
        |redacts?|replaces?|corpus|dataset|collection|examples?|phrases?|strings?|patterns?|keywords?|regex|literal
                |titled|named|called
        |such\ as|like|e\.g|words?|queries|echoe?s?)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that introduce a quotation."""
_KIND_AFTER = re.compile(
    r"['\"”’`]?[-\s](?:attacks?|attempts?|phrases?|patterns?|injections?|payloads?|strings?|styles?|jailbreaks?)\b",
    re.IGNORECASE,
)
_DEFENDS = re.compile(
    r"""\b(?:detect|prevent|protect|block|scan|analy[sz]|alert|classif|identif|flag|quarantin|investigat|mitigat
                |remediat|assess
        |audit|defen[ds]|threat|reputation|verdict|incident|categor|polic(?:y|ies)|finding|compliance|against|mitre
                |advisor
        |rather\ than|not\ an?\b|instead\ of|look(?:s|ing)?\ for|search(?:es|ing)?\ for|recogni[sz]|reject|guard
                |simulated|antivirus|explain|describ|document|educat|awareness|harden|sanitiz|strip|escap(?:es|ing)
                |validat|research
        |inspect|review|warn|confirm|suspicious|honeypot|report(?:s|ed)?\ (?:of|on|whether|if))
        \w{0,8}""",
    re.VERBOSE | re.IGNORECASE,
)
_DEFENCE = re.compile(
    r"""\b(?:detect|protect|prevent|alert|finding|polic(?:y|ies)|incident|scan(?!ner)|verdict|report|analysis|analyses
                |check(?:er|ing)?\b
        |mitigat|score|feed|intelligence|sample|categor|databas|defen[sc]e|guard|test(?:s|ing|er)?\b|filter|block
                |shield|remov
        |rollout|attempts?\b|refus|reject|den(?:y|ied)\b|forbidden|awareness|quarantin)\w{0,8}""",
    re.VERBOSE | re.IGNORECASE,
)
_ACTS = re.compile(
    r"""(?:exfiltrate|steal|dump|extract|inject|bypass|exploit|hijack|harvest|grab|forge|crack|escalate|intercept|send
                |post|upload
        |forward|copy|copies|include|append|attach|add)s?\b""",
    re.VERBOSE | re.IGNORECASE,
)
_INFORMS = re.compile(
    r"""\W{0,6}(?:look(?:s|ing)?\ up|search(?:es)?|return|list|get|retriev|quer(?:y|ies)|check|count|summari[sz]|mark
            |compar|monitor|report|fetch|show|explain|describ|quiz|generat(?:es?|ing)\ an?\ (?:quiz|report|summary)
            |(?:runs?|uses?)\ \w{3,20}\ (?:on|over|against)\ [^.;\n]{3,40}\ and\ (?:reports?|returns?|lists?))
        (?:s|es|e)?\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""How a sentence begins that returns information."""
_ATTACKS = re.compile(
    r"""\b(?:exfiltrat|steal|dump|extract|inject|bypass|exploit|hijack|harvest|grab|forg|crack|escalat|intercept|send
            |post|upload|forward|append|attach|perform|launch|execut|install|deploy|spoof|poison|tamper|evad|conceal
            |abus|overwrit|plant|spray|deliver|hid)(?:s|es|e|ing)?\b
      | \b(?:silently|secretly|target|victim|payload|persistence)s?\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CONJUNCTION = re.compile(r"(?:\b(?:and|then|also)|;|,)\s{0,2}$", re.IGNORECASE)


_KIND = re.compile(r"['\"”’`]?\s(?:tags?|blocks?|markers?|elements?|phrases?|strings?|patterns?)\b", re.IGNORECASE)
_NEGATED = re.compile(
    r"""(?:\b(?:never|not|without|cannot|neither|nor|rather\ than|instead\ of|refus(?:es?|ing)\ to|declin(?:es?
                |ing)\ to)|n[’']t)\b
        (?!\ (?:hesitate|forget|fail|only|just))[^.;:,\n]{0,30}$""",
    re.VERBOSE | re.IGNORECASE,
)
_TRANSFERS = re.compile(
    r"""\b(?:pass|send|includ|put|attach|upload|append|cop(?:y|i)|forward|past|embed|insert|return|add|plac|into
                |content|leak|giv|suppl
        |provid|exfil|post|e-?mail|transmit|steal|harvest|dump|cat)(?:s|es|e|ing|ed)?\b""",
    re.VERBOSE | re.IGNORECASE,
)
_READS = re.compile(
    r"\b(?:read|open|access|fetch|get|load|collect|extract|grab|show|print|scan|retriev|call|use)(?:s|es|e|ing|ed)?\b",
    re.IGNORECASE,
)
_OWN_USE = re.compile(
    r"""\bto\ (?:sign|connect|authenticate|authori[sz]e|log\ in|sign\ in)\b
      | \b(?:sends?|returns?|shows?|passes)\ (?:(?:it|them|its|the)\ )?(?:\w{2,12}\ )?to
            \ the\ (?:caller|user)\b(?!['’])""",
    re.VERBOSE | re.IGNORECASE,
)
"""What a tool may do itself with a file that it names: sign in with it, or return it to its caller."""
_STATES = re.compile(r"\W{0,6}(?:reads|uses|loads|opens|gets|takes|parses|fetches|connects|signs)\b", re.IGNORECASE)
"""How a sentence begins that states what the tool does. An order to the model has another form of the verb."""
_SHOWS = re.compile(
    r"""\b(?:readme|documentation|docs|manual|guide|tutorial|quick\ start|examples?|e\.g|usage|such\ as
            |(?:install(?:ation)?|setup|start|build)\ commands?)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_ORDERS = re.compile(
    r"""\b(?:run|execute|paste|type|use|enter|start)\ (?:it|this|that|them|the\ (?:command|script|following|line))\b
      | \b(?:first|now|then|please|must|should|always|to)\ (?:run|execute|paste|type)\b
      | \bbefore\ (?:using|calling|you|any)\b | \b(?:you|agents?|assistants?|models?)\ (?:must|should|need|have)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"\b(?:configured|user-\w{4,12}|specified|given|chosen|requested|provided|selected|your\ own|of\ your\ choice)\b",
    re.IGNORECASE,
)


def _sentence_start(text: str, start: int) -> int:
    """Return the index at which the sentence around `start` begins, or the earliest one that is searched."""
    earliest = max(0, start - _SENTENCE)
    boundaries = [match.end() for match in _BOUNDARY.finditer(text, earliest, start)]
    return boundaries[-1] if boundaries else earliest


def is_described(text: str, start: int, end: int) -> bool:
    """Return whether the text only describes the phrase between `start` and `end`."""
    before = text[_sentence_start(text, start) : start]
    if _LABEL.search(before) or _NEGATED.search(before) or _KIND_AFTER.match(text, end):
        return True
    verbs = list(_DESCRIBES.finditer(before))
    if _is_within_quotes(text, start, end) and (verbs or _QUOTING.search(before)):
        return True
    between = before[verbs[-1].end() :] if verbs else ""
    return _DESCRIBED.search(between) is not None and _TURNS.search(between) is None


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a sentence that describes something names the phrase in quotation marks, or as a kind of tag."""
    if _DESCRIBES.search(text, _sentence_start(text, start), start) is None:
        return False
    return _is_within_quotes(text, start, end) or _KIND.match(text, end) is not None


def _is_within_quotes(text: str, start: int, end: int) -> bool:
    if _QUOTES.search(text, start, end):
        return True
    before = text[max(0, start - _QUOTATION) : start]
    opening = max((before.rfind(mark) for mark in _OPENING), default=-1)
    if opening < 0 or (opening > 0 and before[opening - 1].isalnum()):  # an apostrophe
        return False
    after = text[end : end + _QUOTATION]
    return any(mark in after for mark in _CLOSING)


def is_defensive(text: str, start: int, end: int) -> bool:
    """Return whether the sentence around a match is about protection. "Detects threats and steals keys" is not."""
    begin = _sentence_start(text, start)
    before = text[begin:start]
    if _NEGATED.search(before):
        return True
    if _ACTS.match(text, start) and _CONJUNCTION.search(before):
        return False
    if _DEFENDS.search(before) or _is_informative(text, begin, start, end):
        return True
    return _DEFENCE.search(text, end, _sentence_end(text, end)) is not None


def _is_informative(text: str, begin: int, start: int, end: int) -> bool:
    """Return whether a sentence names an attack as the subject of information. It does nothing else to anything."""
    if _INFORMS.match(text, begin) is None or _ATTACKS.search(text, begin, start):
        return False
    return _ATTACKS.search(text, end, _sentence_end(text, end)) is None


def is_inspected(text: str, start: int, end: int) -> bool:
    """Return whether a sentence names a file without reading it, or inspects it and passes nothing on.

    A bare path, such as a default value, has no sentence around it.
    """
    begin, finish = _sentence_start(text, start), _sentence_end(text, end)
    if len(text[begin:finish].split()) <= _BARE:
        return False
    if _NEGATED.search(text, begin, start):
        return True
    if _is_own_use(text[begin:finish]):
        return True
    if _TRANSFERS.search(text, begin, finish):
        return False
    return _DEFENDS.search(text, begin, start) is not None or _READS.search(text, begin, finish) is None


def _is_own_use(sentence: str) -> bool:
    """Return whether a sentence states that the tool itself uses a file, and passes it on to nothing but its caller."""
    used = _OWN_USE.sub("", sentence)
    return (
        used != sentence
        and _STATES.match(sentence) is not None
        and not (_TRANSFERS.search(used) or _TURNS.search(used))
    )


def is_shown(text: str, start: int, end: int) -> bool:
    """Return whether a text shows a command, as documentation or as one that it refuses, and never orders to run it."""
    if _ORDERS.search(text) is not None:
        return False
    return is_defensive(text, start, end) or _SHOWS.search(text, _sentence_start(text, start), start) is not None


def is_chosen(text: str, start: int, end: int) -> bool:
    """Return whether a sentence is about protection, or sends something to a target that the user chose."""
    begin, finish = _sentence_start(text, start), _sentence_end(text, end)
    return is_defensive(text, start, end) or _CHOSEN.search(text, begin, finish) is not None


def _sentence_end(text: str, end: int) -> int:
    boundary = _BOUNDARY.search(text, end, end + _SENTENCE)
    return boundary.start() if boundary is not None else min(len(text), end + _SENTENCE)
