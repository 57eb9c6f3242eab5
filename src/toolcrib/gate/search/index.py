"""The index of a server's tools, and ranking over the indexes of several servers.

Ranking is BM25 over weighted fields. A word also finds its synonyms, with a lower weight; a word that no tool contains
finds words that begin with it, or else words with one typo. A tool whose name is the query comes first. A task of
several steps finds tools for each: a step whose tool is already listed counts less for the next tool.

The index of one server is an immutable value and is reused until the server's visible tools change. An index over
several servers consists of theirs; only the frequency of a word is counted over all of them, on demand. A change
therefore costs as much as the server it concerns, and results depend on nothing that the principal does not see.

Must never contain a tool that the principal does not see.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from math import log
from operator import mul
from typing import Final, NamedTuple

from toolcrib.gate.search.synonyms import RELATED
from toolcrib.gate.search.words import LONGEST_QUERY, compounds, name_terms, query_steps, split, stem, terms
from toolcrib.gate.signatures import sentences
from toolcrib.model.json import Json, is_object
from toolcrib.model.tools import Tool

_NAME: Final = 4.5
_TITLE: Final = 2.0
_SERVER: Final = 1.5
_DESCRIPTION: Final = 1.0
_DETAIL: Final = 0.5
_ARGUMENT: Final = 0.7
_ARGUMENT_TEXT: Final = 1.0
"""Weights of a word by the field it is in. A detail is what follows the first sentence of a description."""
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.7
_USUAL_LENGTH: Final = 12.0
"""BM25's k1, b and average length. The average is a constant, so that an index does not depend on other servers."""
_SYNONYM: Final = 0.6
_PREFIX: Final = 0.7
_TYPO: Final = 0.6
"""Weights of a word that is not the query's own."""
_WHOLE_NAME: Final = 0.6
"""Increase of the score if the query contains every word of the tool's name."""
_STEP: Final = 0.7
"""Share of the score that a tool gets for being the best of one step of a task."""
_REPEATED: Final = 0.8
"""Share of the score that a tool keeps in a task of several steps if a better one has the same name."""
_CANDIDATES: Final = 80
"""Tools whose names and steps are compared."""
_CUT_OFF: Final = 0.2
"""Share of the best score below which a tool is not found."""
_EXPANDED: Final = 12
"""Words that one unknown word stands for."""
_MOST_GUESSED: Final = 10
"""Unknown words of a query that may be unfinished or have a typo."""
_MOST_POSTINGS: Final = 1_600
"""Postings that one query reads whole, rarest words first. Commoner words count only for the candidates."""
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


def build_index(tools: Sequence[Tool]) -> ServerIndex:
    """Return the index of one server's tools."""
    postings: dict[str, list[Posting]] = {}
    names: list[frozenset[str]] = []
    exact: dict[str, list[int]] = {}
    for number, tool in enumerate(tools):
        name_words = list(split(tool.ref.tool))
        name = [stem(word) for word in name_words]
        for term, weight in _weights(tool, name):
            postings.setdefault(term, []).append((number, weight))
        names.append(frozenset(name))
        exact.setdefault(" ".join(name_words), []).append(number)
        exact.setdefault(" ".join([*split(tool.ref.server), *name_words]), []).append(number)
    return ServerIndex(tuple(tools), postings, tuple(names), exact)


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
    yield _SERVER, 0.0, name_terms(tool.ref.server)
    if tool.title:
        yield _TITLE, 0.0, terms(tool.title)
    purpose, *details = sentences(tool.description[:_LONGEST_DESCRIPTION])
    yield _DESCRIPTION, 1.0, terms(purpose)
    for text in details:
        yield _DETAIL, 0.5, terms(text)
    properties: Json = tool.input_schema.get("properties")
    for argument, schema in properties.items() if is_object(properties) else ():
        yield _ARGUMENT, 0.5, name_terms(argument)
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
        self._located: dict[str, Mapping[int, float]] = {}
        self._groups: dict[str, Mapping[str, float]] = {}

    def search(self, query: str, limit: int, steps: Sequence[Mapping[str, float]] | None = None) -> list[FoundTool]:
        """Return the best tools, best first, ties sorted by identity. `steps` are those of the query, if known."""
        query = query[:LONGEST_QUERY]
        steps = query_steps(query) if steps is None else steps
        weights: dict[str, float] = {}
        for step in steps:
            for term, weight in step.items():
                weights[term] = max(weights.get(term, 0.0), weight)
        weights |= {term: 1.0 for term in compounds(query) if term not in weights and term in self._words}
        scores, matches, possible = self._score(weights)
        candidates = {number: score * self._name_factor(number, weights) for number, score in scores.items()}
        shares = [self._step(step, candidates, matches) for step in steps] if len(steps) > 1 else []
        exact = self._exact(query)
        chosen = self._choose({key: value for key, value in candidates.items() if key not in exact}, shares, limit)
        scale = possible * (1 + _WHOLE_NAME) * (1 + _STEP if shares else 1)
        found = [FoundTool(self._tools[number], 1.0) for number in sorted(exact, key=lambda at: self._tools[at].ref)]
        found += [FoundTool(self._tools[number], min(0.99, score / scale)) for score, number in chosen]
        return found[:limit]

    def _exact(self, query: str) -> frozenset[int]:
        key = " ".join(split(query))
        return frozenset(offset + number for offset, server in self._servers for number in server.exact.get(key, ()))

    def _name_factor(self, number: int, wanted: Mapping[str, float]) -> float:
        """Return the factor for the share of the tool's name that the query contains."""
        name = self._names[number]
        return 1 + _WHOLE_NAME * len(wanted.keys() & name) / len(name) if name else 1.0

    def _score(self, weights: Mapping[str, float]) -> tuple[dict[int, float], dict[str, Mapping[int, float]], float]:
        """Return the candidates with their scores, the matches of each word, and the highest possible score."""
        groups = [(max(group.values()), term, group) for term, group in self._weigh(weights) if group]
        groups.sort(key=lambda each: (-each[0], each[1]))
        scores: dict[int, float] = {}
        matches: dict[str, Mapping[int, float]] = {}
        left = _MOST_POSTINGS
        common: list[tuple[str, float]] = []
        for most, term, group in groups:
            words = self._affordable(group, left if scores else max(left, self._count))
            if not words:
                common.append((term, most))
                continue
            matches[term] = found = self._match(words)
            left -= sum(self._frequency(word) for word in words)
            for number, score in found.items():
                scores[number] = scores.get(number, 0.0) + score
        least = min(sorted(scores.values(), reverse=True)[:_CANDIDATES], default=0.0)
        kept = {number: score for number, score in scores.items() if score >= least}
        for term, weight in common:
            postings = self._locate(term)
            matches[term] = found = {number: weight * postings[number] for number in postings.keys() & kept.keys()}
            for number, score in found.items():
                kept[number] += score
        return kept, matches, (_SATURATION + 1) * sum(most for most, _, _ in groups) or 1.0

    def _affordable(self, group: Mapping[str, float], left: int) -> dict[str, float]:
        """Return the words of a group whose postings may be read, by weight."""
        words: dict[str, float] = {}
        for word, weight in group.items():
            frequency = self._frequency(word)
            if frequency <= left:
                words[word] = weight
                left -= frequency
            elif not words:
                break
        return words

    def _match(self, group: Mapping[str, float]) -> dict[int, float]:
        """Return the best match of each tool among the words of a group."""
        found: dict[int, float] = {}
        for term, weight in group.items():
            postings = self._locate(term)
            if not found:
                found = {number: weight * value for number, value in postings.items()}
                continue
            for number, value in postings.items():
                if (score := weight * value) > found.get(number, 0.0):
                    found[number] = score
        return found

    def _step(
        self, step: Mapping[str, float], candidates: Mapping[int, float], matches: Mapping[str, Mapping[int, float]]
    ) -> dict[int, float]:
        """Return the scores of the candidates for one step of a task."""
        scores: dict[int, float] = {}
        for found in [matches[term] for term in step if term in matches]:
            for number in candidates.keys() & found.keys():
                scores[number] = scores.get(number, 0.0) + found[number]
        return {number: score * self._name_factor(number, step) for number, score in scores.items()}

    def _choose(
        self, scores: Mapping[int, float], shares: Sequence[Mapping[int, float]], limit: int
    ) -> list[tuple[float, int]]:
        """Return the best candidates in order. A step counts less the better the tools before serve it."""
        best = [max(share.values(), default=1.0) for share in shares]
        open_ = [_STEP] * len(shares)
        equal: dict[tuple[float, ...], list[int]] = {}
        for number, score in scores.items():
            equal.setdefault((score, *(share.get(number, 0.0) for share in shares)), []).append(number)
        for numbers in equal.values():
            numbers.sort(key=lambda at: self._tools[at].ref, reverse=True)
        heap = [(-_value(key, open_), self._tools[equals[-1]].ref, key, equals, False) for key, equals in equal.items()]
        heapify(heap)
        chosen: list[tuple[float, int]] = []
        names: set[frozenset[str]] = set()
        while heap and len(chosen) < limit:
            negative, ref, key, equals, is_repeated = heap[0]
            value = _value(key, open_)
            if value < -negative:  # values only fall while tools are chosen, so only the first one must be current
                heapreplace(heap, (-value, ref, key, equals, is_repeated))
                continue
            if chosen and value < _CUT_OFF * chosen[0][0]:
                break
            number = equals.pop()
            if equals:
                heapreplace(heap, (-value, self._tools[equals[-1]].ref, key, equals, is_repeated))
            else:
                heappop(heap)
            if shares and not is_repeated and self._names[number] in names:
                lower = tuple(_REPEATED * each for each in key)
                heappush(heap, (-_value(lower, open_), ref, lower, [number], True))
                continue
            names.add(self._names[number])
            chosen.append((value, number))
            for at, share in enumerate(shares):
                open_[at] *= 1 - share.get(number, 0.0) / best[at]
        return chosen

    def _weigh(self, weights: Mapping[str, float]) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each word of a query with the words to look for in its place, and their weights."""
        guessed = 0
        for term, weight in weights.items():
            group = self._groups.get(term)
            if group is None:
                if known := term in self._words:
                    own = {term: self._rarity(self._frequency(term))}
                else:
                    guessed += weight > _TYPO
                    own = self._similar(term) if weight > _TYPO and guessed <= _MOST_GUESSED else {}
                group = self._with_related(term, own)
                if known:
                    self._groups[term] = group
            yield term, {word: weight * value for word, value in group.items()}

    def _with_related(self, term: str, group: dict[str, float]) -> dict[str, float]:
        most = max(group.values(), default=None)
        for related in RELATED.get(term, ()):
            if related not in group and related in self._words:
                rarity = self._rarity(self._frequency(related))
                group[related] = _SYNONYM * (rarity if most is None else min(rarity, most))
        return group

    def _similar(self, term: str) -> dict[str, float]:
        """Return the words that an unknown word may stand for: it may be unfinished, or have a typo."""
        found = [(word, _PREFIX) for word in self._beginning(term)] if len(term) > 2 else []
        if not found and len(term) > 3:
            found = [(word, _TYPO) for word in self._misspelt(term)]
        return {word: share * self._rarity(self._frequency(word)) for word, share in found[:_EXPANDED]}

    def _beginning(self, term: str) -> list[str]:
        start = bisect_left(self._vocabulary, term)
        return [word for word in self._vocabulary[start : start + _EXPANDED] if word.startswith(term)]

    def _misspelt(self, term: str) -> list[str]:
        """Return known words with one letter more, less, changed or swapped, beginning with the same letter.

        One typo leaves the first two or the last two letters as they are.
        """
        near = {word for key in _edges(term) for word in self._by_edge.get(key, ())}
        return sorted(word for word in near if abs(len(word) - len(term)) < 2 and _is_typo(term, word))

    def _rarity(self, frequency: int) -> float:
        return log(1 + (self._count - frequency + 0.5) / (frequency + 0.5))

    def _frequency(self, term: str) -> int:
        return len(self._locate(term))

    def _locate(self, term: str) -> Mapping[int, float]:
        """Return the weights of a word by tool, over all servers. Cached, except for unknown words."""
        kept = self._located.get(term)
        if kept is None:
            if term not in self._words:
                return {}
            kept = {
                offset + number: value
                for offset, server in self._servers
                for number, value in server.postings.get(term, ())
            }
            self._located[term] = kept
        return kept

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(term for _, server in self._servers for term in server.postings)

    @cached_property
    def _vocabulary(self) -> list[str]:
        return sorted(self._words)

    @cached_property
    def _by_edge(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for word in self._vocabulary:
            for key in _edges(word):
                found.setdefault(key, []).append(word)
        return found


def _value(key: Sequence[float], open_: Sequence[float]) -> float:
    """Return the score of a tool with its share of each step, as far as the step is open."""
    score, *shares = key
    return score + sum(map(mul, open_, shares))


def _edges(word: str) -> tuple[str, str]:
    return word[:2], f"{word[0]}…{word[-2:]}"


def _is_typo(first: str, second: str) -> bool:
    """Return whether one letter is added, left out, changed or swapped with its neighbour."""
    short, long = sorted((first, second), key=len)
    same = next((at for at, letter in enumerate(short) if letter != long[at]), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    swapped = short[same : same + 2] == long[same : same + 2][::-1] and short[same + 2 :] == long[same + 2 :]
    return swapped or short[same + 1 :] == long[same + 1 :]
