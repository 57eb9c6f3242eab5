"""Splits text into the words that the search compares: lower case, without stop words, stemmed.

Identifiers are split at case, `_`, `-`, `.` and digits. Text without spaces between words, such as Chinese, becomes
pairs of characters. In a query, an address, a path or a quotation is the value of an argument: it counts less than the
words around it, and its kind is a hint.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from threading import Lock
from typing import Final

from snowballstemmer.english_stemmer import EnglishStemmer  # pyright: ignore[reportMissingTypeStubs]

LONGEST_QUERY: Final = 2_000
"""Characters of a query that are read."""
MOST_TERMS: Final = 100
"""Different words of a query that count. The rest is ignored."""
LONGEST_WORD: Final = 40
"""Characters of a word that are compared."""

_VALUE_WORD: Final = 0.4
_HOST: Final = 0.8
_GENERIC: Final = 0.6
"""Weights of words that name no topic or are values, beside 1 for all others."""
_LEAST_STEP: Final = 1.5
"""Weight of the words of a clause that is a step of its own."""
MOST_STEPS: Final = 8
"""Steps of a task; the last one contains the rest."""
MOST_FILE_STEPS: Final = 4
"""Further steps that read or write a file."""
_SENTENCE_ENDS: Final = frozenset(".!?;\n")

_RUN = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\WA-Za-z\d_]+")
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_VALUE = re.compile(
    r"""(?P<url>['"]?https?://\S+)
    | (?P<path>(?<![^\s"'(`])(?:~|\.{0,2})/[\w./-]+ | \b[A-Za-z]:\\\S+)
    | (?P<quoted>["“][^"”]{1,200}["”] | (?<!\w)'[^']{2,200}'(?!\w))
    """,
    re.VERBOSE,
)

_CLAUSE_END = re.compile(r"[.!?;:\n](?=\s|$)|,\s+(?:and|then|also|or)\b|,|\b(?:and|then|also)\b")
_WRITES = re.compile(
    r"\b(?:sav|writ|stor|generat|creat|draft|export|output|put|report|document|record|summari)\w*\b", re.IGNORECASE
)
_BEFORE_FILE = re.compile(r"\b(?:in|to|as|at|on|into|under)\s+\Z", re.IGNORECASE)
_FILE = re.compile(r"\0+")
"""The path of a file, whose characters are masked."""
_STOP_WORDS = """
a about above after again all also am an and any are as assist assistance at be because been before being below
between both but by can comprehensive could d did do does doing down during each else few for from further give had
has have having he help her here hers him his how i if in include including interested into is it its itself just know
let like ll look looking lot m make may me might more most must my need needs no nor not now of off on once one only
or other our ours out over own please re s same shall she should so some specific specifically such t tell than that
the their theirs them then there these they this those through to too under until up use used user uses using various
ve very via want wants was way we were what when where whether which while who whom why will with would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that are ignored in tools and queries."""

_GENERIC_WORDS = """
able access ask available based best check create current detail detailed different discover ensure explain find
generate get go good identify information kind kindly latest list make name new number offer plan popular provide
recent recommend recommendation related relevant request require search see share show start suggest suggestion thing
time today top try type update way work
"""

_FORMATS = {
    "doc": "word document",
    "docx": "word document",
    "jpeg": "image",
    "jpg": "image",
    "mp3": "audio",
    "mp4": "video",
    "pdf": "pdf",
    "png": "image",
    "pptx": "ppt presentation powerpoint",
    "svg": "image",
    "wav": "audio",
    "xls": "excel sheet",
    "xlsx": "excel sheet",
}
"""Words for files that programs of their own write."""
_EXTENSIONS = {**_FORMATS, "csv": "data", "md": "markdown", "py": "python"}
"""Words for the kind of a file."""

_stem: Callable[[str], str] = EnglishStemmer().stemWord  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


_stemming = Lock()
"""The stemmer keeps the word in itself, and indexes are built in threads."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    if word.isdigit():
        return word
    with _stemming:
        return _stem(word)


_GENERIC_STEMS = frozenset(map(stem, _GENERIC_WORDS.split()))
"""Words of any request, whatever it is about."""


def split(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, with identifiers split into their parts."""
    for run in _RUN.findall(text):
        if run.isascii() and run.isalpha() and (run.islower() or run.istitle()):
            yield run[:LONGEST_WORD].lower()
            continue
        for piece in _PIECE.findall(run):
            if _UNSPACED.search(piece):
                yield from (piece[at : at + 2] for at in range(max(1, len(piece) - 1)))
            else:
                yield piece[:LONGEST_WORD].casefold()


def terms(text: str) -> list[str]:
    """Return the stems of all words of a text that are not stop words."""
    return [stem(word) for word in split(text) if word not in STOP_WORDS]


@lru_cache(maxsize=20_000)
def name_terms(name: str) -> tuple[str, ...]:
    """Return the stems of a short text that many tools share, such as the name of a server or an argument."""
    return tuple(terms(name))


def query_steps(query: str) -> list[dict[str, float]]:
    """Return the stems of each step of a task with their weights, from 0 to 1.

    A step is a clause; one without enough words of its own belongs to the step before. Reading or
    writing a file is a step of its own. Stop words count if there is nothing else.
    """
    query = query.replace("\0", " ")
    masked = _VALUE.sub(lambda match: ("\0" if _is_file(match) else "_") * len(match[0]), query)
    ends = [match.end() for match in _CLAUSE_END.finditer(masked)]
    steps: list[dict[str, float]] = []
    files: list[dict[str, float]] = []
    sentence = 0
    for start, end in pairwise([0, *ends, len(query)]):
        weights = _clause_terms(query[start:end])
        if steps and (sum(weights.values()) < _LEAST_STEP or len(steps) == MOST_STEPS):
            for term, weight in weights.items():
                steps[-1][term] = max(weight, steps[-1].get(term, 0.0))
        elif weights:
            steps.append(weights)
        if "\0" in masked[start:end]:
            texts = [masked[sentence : file.start()].rpartition("\0")[2] for file in _FILE.finditer(masked, start, end)]
            verb = "write" if any(map(_names_result, texts)) else "read"
            files += _file_steps(query[start:end], verb)
        if masked[end - 1 : end] in _SENTENCE_ENDS:
            sentence = end
    return _limit_words((steps + files[:MOST_FILE_STEPS]) or [{stem(word): 1.0 for word in split(query)}])


def _names_result(text: str) -> bool:
    """Return whether the file after this text is the place of a result."""
    writes, before = _WRITES.search(text), _BEFORE_FILE.search(text)
    return writes is not None and before is not None and writes.end() <= before.start()


def _is_file(value: re.Match[str]) -> bool:
    """Return whether a value is the path of a file."""
    return bool(value["path"]) and "." in re.split(r"[/\\]", value[0].rstrip("./\\"))[-1]


def _file_steps(clause: str, verb: str) -> list[dict[str, float]]:
    """Return the step that reads or writes the last file of a clause, if there is one."""
    paths = [match[0] for match in _VALUE.finditer(clause) if match["path"]]
    name = re.split(r"[/\\]", paths[-1].rstrip("./\\"))[-1] if paths else ""
    _, dot, extension = name.rpartition(".")
    kind = _FORMATS.get(extension.lower(), "file")
    return [{stem(word): 1.0 for word in (verb, *kind.split())}] if dot else []


def _clause_terms(clause: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for match in _VALUE.finditer(clause):
        _add_value(weights, match)
    _add(weights, _VALUE.sub(" ", clause), 1.0)
    return weights


def _limit_words(steps: list[dict[str, float]]) -> list[dict[str, float]]:
    """Leave out the words of a query that exceed the limit."""
    kept = set(islice(dict.fromkeys(term for step in steps for term in step), MOST_TERMS))
    return [{term: weight for term, weight in step.items() if term in kept} for step in steps]


def _add(weights: dict[str, float], text: str, weight: float) -> None:
    for word in split(text):
        if word not in STOP_WORDS:
            term = stem(word)
            own = _VALUE_WORD if word.isdigit() else _GENERIC if term in _GENERIC_STEMS else 1.0
            weights[term] = max(weights.get(term, 0.0), weight * own)


def _add_value(weights: dict[str, float], match: re.Match[str]) -> None:
    value = match[0]
    if match["url"]:
        _add(weights, "url web page", _VALUE_WORD)
        host = value.partition("://")[2].partition("/")[0]
        _add(weights, host.removeprefix("www.").rpartition(".")[0], _HOST)
    elif match["quoted"]:
        _add(weights, value, _VALUE_WORD)
    else:
        name = re.split(r"[/\\]", value.rstrip("./\\"))[-1]
        stem_of_name, dot, extension = name.rpartition(".")
        kind = f"file {extension} {_EXTENSIONS.get(extension.lower(), '')}" if dot and stem_of_name else "directory"
        _add(weights, kind, _VALUE_WORD)
        _add(weights, name, _VALUE_WORD)


def compounds(query: str) -> list[str]:
    """Return the stems of adjacent words written as one: `sequential thinking` also means `sequentialthinking`."""
    words = list(split(query))[: 2 * MOST_TERMS]
    return [first + stem(second) for first, second in pairwise(words)]
