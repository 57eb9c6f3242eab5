"""Splits text into the words that the search compares: lower case, without stop words, stemmed.

Identifiers are split at case, `_`, `-`, `.` and digits. Text without spaces between words, such as Chinese, becomes
pairs of characters. In a query, an address, a path or a quotation is the value of an argument: it counts less than the
words around it, and its kind is a hint.
"""

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

LONGEST_QUERY: Final = 2_000
"""Characters of a query that are read."""
MOST_TERMS: Final = 100
"""Different words of a query that count. The rest is ignored."""
LONGEST_WORD: Final = 40
"""Characters of a word that are compared."""

_HINT: Final = 0.4
_PATH_NAME: Final = 0.3
_QUOTED: Final = 0.4
_NUMBER: Final = 0.3

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

_EXTENSIONS = {
    "csv": "data",
    "doc": "word document",
    "docx": "word document",
    "jpeg": "image",
    "jpg": "image",
    "md": "markdown",
    "mp3": "audio",
    "mp4": "video",
    "png": "image",
    "pptx": "ppt presentation powerpoint",
    "py": "python",
    "svg": "image",
    "wav": "audio",
    "xls": "excel sheet",
    "xlsx": "excel sheet",
}
"""Words for the kind of a file."""


@cache
def _stemmer() -> Callable[[str], str]:
    """Return the stemmer. Imported at the first search: it brings the stemmers of all languages."""
    return importlib.import_module("snowballstemmer.english_stemmer").EnglishStemmer().stemWord


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    return _stemmer()(word)


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


def query_terms(query: str) -> dict[str, float]:
    """Return the stems of a query with their weights, from 0 to 1. Stop words count if there is nothing else."""
    query = query[:LONGEST_QUERY]
    weights: dict[str, float] = {}
    for match in _VALUE.finditer(query):
        _add_value(weights, match)
    plain = _VALUE.sub(" ", query)
    _add(weights, plain, 1.0)
    if not weights:
        weights = {stem(word): 1.0 for word in split(query)}
    return dict(list(weights.items())[:MOST_TERMS])


def _add(weights: dict[str, float], text: str, weight: float) -> None:
    for word in split(text):
        if word not in STOP_WORDS:
            term = stem(word)
            weights[term] = max(weights.get(term, 0.0), weight * _NUMBER if word.isdigit() else weight)


def _add_value(weights: dict[str, float], match: re.Match[str]) -> None:
    value = match[0]
    if match["url"]:
        _add(weights, "url web page", _HINT)
    elif match["quoted"]:
        _add(weights, value, _QUOTED)
    else:
        name = re.split(r"[/\\]", value.rstrip("./\\"))[-1]
        stem_of_name, dot, extension = name.rpartition(".")
        kind = f"file {extension} {_EXTENSIONS.get(extension.lower(), '')}" if dot and stem_of_name else "directory"
        _add(weights, kind, _HINT)
        _add(weights, name, _PATH_NAME)


def compounds(query: str) -> list[str]:
    """Return the stems of adjacent words written as one: `sequential thinking` also means `sequentialthinking`."""
    words = list(split(query[:LONGEST_QUERY]))[: 2 * MOST_TERMS]
    return [stem(first + second) for first, second in pairwise(words)]
