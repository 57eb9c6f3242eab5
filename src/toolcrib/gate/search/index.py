"""The index of a server's tools, and ranking over the indexes of several servers.

Ranking is BM25 over weighted fields. A word also finds its synonyms, with a lower weight; a word that no tool contains
finds words that begin with it, or else words with one typo. A tool whose name is the query comes first.

The index of one server is an immutable value and is reused until the server's visible tools change. An index over
several servers consists of theirs; only the frequency of a word is counted over all of them, on demand. A change
therefore costs as much as the server it concerns, and results depend on nothing that the principal does not see.

Must never contain a tool that the principal does not see.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final, NamedTuple

from toolcrib.gate.search.synonyms import related_stems
from toolcrib.gate.search.words import compounds, query_terms, split, stem, terms
from toolcrib.model.json import Json, is_object
from toolcrib.model.tools import Tool

_NAME: Final = 4.0
_TITLE: Final = 2.0
_SERVER: Final = 2.0
_DESCRIPTION: Final = 1.0
_ARGUMENT: Final = 0.7
_ARGUMENT_TEXT: Final = 0.4
"""Weights of a word by the field it is in."""
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.7
_USUAL_LENGTH: Final = 12.0
"""BM25's k1, b and average length. The average is a constant, so that an index does not depend on other servers."""
_SYNONYM: Final = 0.5
_PREFIX: Final = 0.7
_TYPO: Final = 0.6
"""Weights of a word that is not the query's own."""
_WHOLE_NAME: Final = 0.7
"""Increase of the score if the query contains every word of the tool's name."""
_RERANKED: Final = 100
"""Candidates whose names are compared."""
_CUT_OFF: Final = 0.2
"""Share of the best score below which a tool is not found."""
_EXPANDED: Final = 12
"""Words that one unknown word stands for."""
_MOST_POSTINGS: Final = 8_000
"""Postings that one query reads. The rarest words are read first, so only common ones are left out."""
_LONGEST_DESCRIPTION: Final = 2_000
_LONGEST_ARGUMENT_TEXT: Final = 300
"""Characters that are indexed."""

Posting = tuple[int, float]
"""The number of a tool, and the weight of a word in it."""


class FoundTool(NamedTuple):
    """A tool with its score: 1 is an exact name, lower is less certain."""

    tool: Tool
    score: float


@dataclass(frozen=True, slots=True)
class ServerIndex:
    """The words of one server's tools. `names` has the words of each tool's name, `exact` the tools by full name."""

    tools: tuple[Tool, ...]
    postings: Mapping[str, Sequence[Posting]]
    names: tuple[frozenset[str], ...]
    exact: Mapping[str, Sequence[int]]


class IndexBuilder:
    """Builds the index of one server, tool by tool, so that the caller can pause."""

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._postings: dict[str, list[Posting]] = {}
        self._names: list[frozenset[str]] = []
        self._exact: dict[str, list[int]] = {}

    def add(self, tool: Tool) -> None:
        """Add a tool."""
        number = len(self._tools)
        name_words = list(split(tool.ref.tool))
        name = [stem(word) for word in name_words]
        for term, weight in _weights(tool, name):
            self._postings.setdefault(term, []).append((number, weight))
        self._tools.append(tool)
        self._names.append(frozenset(name))
        self._exact.setdefault(" ".join(name_words), []).append(number)
        self._exact.setdefault(" ".join([*split(tool.ref.server), *name_words]), []).append(number)

    def finish(self) -> ServerIndex:
        """Return the index."""
        return ServerIndex(tuple(self._tools), self._postings, tuple(self._names), self._exact)


def _weights(tool: Tool, name: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield each word of a tool with its weight: its frequency in all fields, saturated, by the text's length."""
    frequency: dict[str, float] = {}
    length = 0.0
    for weight, share, words in _fields(tool, name):
        length += share * len(words)
        for term in words:
            frequency[term] = frequency.get(term, 0.0) + weight
    half = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / _USUAL_LENGTH)
    for term, value in frequency.items():
        yield term, value * (_SATURATION + 1) / (value + half)


def _fields(tool: Tool, name: Sequence[str]) -> Iterator[tuple[float, float, Sequence[str]]]:
    """Yield the fields of a tool: the weight of a word, its share of the length, and the words."""
    yield _NAME, 0.0, name
    yield _SERVER, 0.0, terms(tool.ref.server)
    if tool.title:
        yield _TITLE, 0.0, terms(tool.title)
    yield _DESCRIPTION, 1.0, terms(tool.description[:_LONGEST_DESCRIPTION])
    properties: Json = tool.input_schema.get("properties")
    for argument, schema in properties.items() if is_object(properties) else ():
        yield _ARGUMENT, 0.5, terms(argument)
        text: Json = schema.get("description") if is_object(schema) else None
        if isinstance(text, str):
            yield _ARGUMENT_TEXT, 0.3, terms(text[:_LONGEST_ARGUMENT_TEXT])


class ToolIndex:
    """Searches the tools of several servers."""

    def __init__(self, servers: Iterable[ServerIndex]) -> None:
        self._servers: list[tuple[int, ServerIndex]] = []
        self._count = 0
        for server in servers:
            self._servers.append((self._count, server))
            self._count += len(server.tools)
        self._tools = [tool for _, server in self._servers for tool in server.tools]
        self._names = [name for _, server in self._servers for name in server.names]
        self._located: dict[str, Sequence[Posting]] = {}

    def search(self, query: str, limit: int) -> list[FoundTool]:
        """Return the best tools, best first, ties sorted by identity."""
        scores, possible, wanted = self._score(query)
        exact = self._exact(query)
        least = _CUT_OFF * max(scores.values(), default=0.0)
        best = sorted(((score, number) for number, score in scores.items() if score >= least), reverse=True)
        ranked: list[tuple[float, int]] = [(1.0, number) for number in exact]
        for score, number in best[: max(limit, _RERANKED)]:
            if number not in exact:
                name = self._names[number]
                covered = len(name & wanted) / len(name) if name else 0.0
                ranked.append((min(0.99, score * (1 + _WHOLE_NAME * covered) / possible), number))
        ranked.sort(key=lambda pair: (-pair[0], self._tools[pair[1]].ref))
        return [FoundTool(self._tools[number], score) for score, number in ranked[:limit]]

    def _exact(self, query: str) -> frozenset[int]:
        key = " ".join(split(query))
        return frozenset(offset + number for offset, server in self._servers for number in server.exact.get(key, ()))

    def _score(self, query: str) -> tuple[dict[int, float], float, frozenset[str]]:
        """Return the scores by tool, the highest possible one, and the stems of the query."""
        weights = query_terms(query)
        weights |= {term: 1.0 for term in compounds(query) if term not in weights and self._locate(term)}
        groups = [group for term, weight in weights.items() if (group := self._group(term, weight))]
        groups.sort(key=lambda group: max(group.values()), reverse=True)
        scores: dict[int, float] = {}
        possible, left = 1e-9, _MOST_POSTINGS
        for group in groups:
            possible += max(group.values()) * (_SATURATION + 1)
            if left > 0:
                left -= self._add_group(scores, group)
        return scores, possible * (1 + _WHOLE_NAME), frozenset(weights)

    def _add_group(self, scores: dict[int, float], group: Mapping[str, float]) -> int:
        """Add the best match of each tool among the words of a group. Return the number of postings that were read."""
        found: dict[int, float] = {}
        read = 0
        for term, weight in group.items():
            postings = self._locate(term)
            read += len(postings)
            if not found:
                found = {number: weight * value for number, value in postings}
            else:
                for number, value in postings:
                    if (score := weight * value) > found.get(number, 0.0):
                        found[number] = score
        for number, score in found.items():
            scores[number] = scores.get(number, 0.0) + score
        return read

    def _group(self, term: str, weight: float) -> dict[str, float]:
        """Return the words to look for in place of one, each with its weight."""
        own = self._frequency(term)
        group = {term: weight * self._rarity(own)} if own else self._similar(term, weight)
        most = max(group.values(), default=None)
        for related in related_stems().get(term, ()):
            if related not in group and (frequency := self._frequency(related)):
                rarity = weight * self._rarity(frequency)
                group[related] = _SYNONYM * (rarity if most is None else min(rarity, most))
        return group

    def _similar(self, term: str, weight: float) -> dict[str, float]:
        """Return the words that an unknown word may stand for: it may be unfinished, or have a typo."""
        found = [(word, _PREFIX) for word in self._beginning(term)] if len(term) > 2 else []
        if not found and len(term) > 3:
            found = [(word, _TYPO) for word in self._misspelt(term)]
        return {word: weight * share * self._rarity(self._frequency(word)) for word, share in found[:_EXPANDED]}

    def _beginning(self, term: str) -> list[str]:
        start = bisect_left(self._vocabulary, term)
        return [word for word in self._vocabulary[start : start + _EXPANDED] if word.startswith(term)]

    def _misspelt(self, term: str) -> list[str]:
        """Return known words with one letter more, less, changed or swapped, beginning with the same letter."""
        sizes = (len(term) - 1, len(term), len(term) + 1)
        return [word for size in sizes for word in self._by_start.get((term[0], size), ()) if _is_typo(term, word)]

    def _rarity(self, frequency: int) -> float:
        return log(1 + (self._count - frequency + 0.5) / (frequency + 0.5))

    def _frequency(self, term: str) -> int:
        return len(self._locate(term))

    def _locate(self, term: str) -> Sequence[Posting]:
        """Return the postings of a word over all servers. Cached, except for unknown words."""
        kept = self._located.get(term)
        if kept is None:
            if term not in self._words:
                return ()
            found = [(offset, postings) for offset, server in self._servers if (postings := server.postings.get(term))]
            kept = [(offset + number, value) for offset, postings in found for number, value in postings]
            self._located[term] = kept
        return kept

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(term for _, server in self._servers for term in server.postings)

    @cached_property
    def _vocabulary(self) -> list[str]:
        return sorted(self._words)

    @cached_property
    def _by_start(self) -> Mapping[tuple[str, int], Sequence[str]]:
        found: dict[tuple[str, int], list[str]] = {}
        for word in self._vocabulary:
            found.setdefault((word[0], len(word)), []).append(word)
        return found


def _is_typo(first: str, second: str) -> bool:
    """Return whether one letter is added, left out, changed or swapped with its neighbour."""
    short, long = sorted((first, second), key=len)
    same = next((at for at, letter in enumerate(short) if letter != long[at]), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    swapped = short[same : same + 2] == long[same : same + 2][::-1] and short[same + 2 :] == long[same + 2 :]
    return swapped or short[same + 1 :] == long[same + 1 :]
