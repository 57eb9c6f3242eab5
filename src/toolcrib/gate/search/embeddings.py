"""Optional ranking by meaning: sentences and tools as vectors of a static model2vec model.

The model is a directory on this machine, named in the settings; nothing is ever downloaded. Its ranking is fused with
the ranking by words (reciprocal rank fusion). The more steps a task has, the less its vector resembles any one tool,
and the less it counts. Without a model, or if it cannot be loaded, the search ranks by words alone.

This is the only module that uses model2vec. It is loaded on first use, because it is an optional extra.
"""

import importlib
import importlib.util
import logging
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from toolcrib.gate.search.index import FoundTool
from toolcrib.gate.search.words import LONGEST_QUERY, split
from toolcrib.model.tools import Tool

logger = logging.getLogger(__name__)

_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json")
_WEIGHT: Final = 0.5
_RANK: Final = 3
"""Weight of the ranking by meaning, and the constant of the fusion: a low one lets the first ranks decide."""
_LEAST: Final = 0.25
"""Cosine below which a tool does not match."""
MOST_RANKED: Final = 20
"""Tools of each ranking that are fused."""
_LONGEST_DESCRIPTION: Final = 600
_BATCH: Final = 1_000


def unusable(directory: Path) -> str | None:
    """Return why a model cannot be used, or None if it can."""
    if importlib.util.find_spec("model2vec") is None:
        return "The extra `search` is not installed."
    missing = [name for name in _FILES if not (directory / name).is_file()]
    return f"{directory} is no model2vec model: {', '.join(missing)} is missing." if missing else None


class ToolVectors:
    """The vectors of tools, one row each, of the same length."""

    def __init__(self, model: "StaticEmbeddings", rows: Any) -> None:
        self._model = model
        self._rows = rows

    def nearest(self, query: str) -> list[int]:
        """Return the numbers of the tools nearest to a query, nearest first."""
        similarity = self._model.similarity(self._rows, query[:LONGEST_QUERY])
        near = (similarity >= _LEAST).nonzero()[0]
        order = near[(-similarity[near]).argsort(kind="stable")][:MOST_RANKED]
        return order.tolist()


class StaticEmbeddings:
    """A model on this machine, loaded on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._model: Any = None
        self._numpy: Any = None
        self._is_usable = True

    def vectors_of(self, servers: Sequence[Sequence[Tool]]) -> list[Any] | None:
        """Return the vectors of each server's tools as rows, or None if the model cannot be used.

        The reason is logged once. Runs in a thread.
        """
        if not self._is_usable:
            return None
        try:
            return self._encode_servers(servers)
        except Exception as error:  # noqa: BLE001 boundary: a damaged model must not end the search
            self._is_usable = False
            logger.warning("Search ranks by words only: the model in search_model cannot be used: %s", error)
            return None

    def joined(self, parts: Sequence[Any]) -> ToolVectors:
        """Return the vectors of several servers as those of one index."""
        return ToolVectors(self, self._numpy.concatenate(parts))

    def encode(self, texts: Sequence[str]) -> Any:
        """Return the vectors of texts, of length 1."""
        rows = self._model.encode(list(texts), use_multiprocessing=False)
        return rows / self._numpy.maximum(self._numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def similarity(self, rows: Any, text: str) -> Any:
        """Return the cosine of each row with a text."""
        return self._numpy.einsum("ij,j->i", rows, self.encode([text])[0])  # a product would start threads, and spin

    def _encode_servers(self, servers: Sequence[Sequence[Tool]]) -> list[Any]:
        if self._model is None:
            self._load()
        texts = [_text(tool) for tools in servers for tool in tools]
        batches = [self.encode(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)]
        ends = list(accumulate(map(len, servers)))
        rows: Any = self._numpy.concatenate(batches) if batches else []
        # Copies, because a part would keep the vectors of all servers in memory.
        return [rows[start:end].copy() for start, end in pairwise([0, *ends])]

    def _load(self) -> None:
        if reason := unusable(self._directory):  # model2vec would try to download what is not there
            raise ValueError(reason)
        self._numpy = importlib.import_module("numpy")
        static: Any = importlib.import_module("model2vec").StaticModel
        self._model = static.from_pretrained(self._directory, force_download=False)


def fused(words: Sequence[FoundTool], nearest: Sequence[Tool], steps: int, limit: int) -> list[FoundTool]:
    """Return the tools of both rankings, best first. Exact names stay first."""
    weight = _WEIGHT / max(1, steps)
    exact = [found for found in words if found.score == 1.0]
    ranks: dict[int, float] = {}
    tools: dict[int, Tool] = {}
    for share, ranked in ((1.0, [found.tool for found in words[len(exact) :]]), (weight, nearest)):
        for rank, tool in enumerate(ranked):
            ranks[id(tool)] = ranks.get(id(tool), 0.0) + share / (_RANK + rank)
            tools[id(tool)] = tool
    for found in exact:
        ranks.pop(id(found.tool), None)
    best = (1 + weight) / _RANK
    order = sorted(ranks, key=lambda key: (-ranks[key], tools[key].ref))
    return [*exact, *(FoundTool(tools[key], min(0.99, ranks[key] / best)) for key in order)][:limit]


def _text(tool: Tool) -> str:
    name = " ".join((*split(tool.ref.server), *split(tool.ref.tool)))
    return f"{name}. {tool.description[:_LONGEST_DESCRIPTION]}"
