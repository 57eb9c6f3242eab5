"""Compiles many literal texts into one regular expression.

Their first characters form a trie, so that searching for a thousand texts costs little more than searching for one.
"""

import re
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final

_DEPTH: Final = 6
"""Depth of the trie, in characters."""


def any_of(literals: Iterable[str]) -> str:
    """Return the source of a pattern that matches any of these texts, the longest first."""
    return _branches(sorted({literal for literal in literals if literal}), 0)


def _branches(literals: Collection[str], depth: int) -> str:
    """Return the pattern of sorted texts that share their first `depth` characters, without that prefix."""
    if depth == _DEPTH or len(literals) == 1:
        tails = sorted((literal[depth:] for literal in literals), key=len, reverse=True)
        return _group([re.escape(tail) for tail in tails])
    ended = [""] if any(len(literal) == depth for literal in literals) else []
    longer = [literal for literal in literals if len(literal) > depth]
    groups = groupby(longer, key=lambda literal: literal[depth])
    return _group([*(re.escape(first) + _branches(list(group), depth + 1) for first, group in groups), *ended])


def _group(patterns: list[str]) -> str:
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
