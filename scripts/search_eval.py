"""`make search-eval`: measures the search on public sets of tools and queries, and prints the table of docs/search.md.

The sets are read from the directory in TOOLCRIB_DATA and are never part of the project. Queries whose SHA-1 is even are
for tuning the search; those with an odd one are held out, for the number that counts. `--tuning` leaves them out. A
second argument names a model2vec model, with which the search also ranks by meaning.
"""

import csv
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from heapq import nlargest
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from toolcrib.gate.search.embeddings import StaticEmbeddings
from toolcrib.gate.search.search import ToolSearch
from toolcrib.gate.search.words import terms
from toolcrib.gate.view import Listing
from toolcrib.model.tools import Tool, ToolRef

FOUND = 5
TUNING = "--tuning"
MOST_QUERIES = 1_000
"""Queries per part; larger sets are sampled evenly."""


class Query(NamedTuple):
    """A query, and for each tool it needs, the tools that would do."""

    text: str
    wanted: list[list[ToolRef]]


class DataSet(NamedTuple):
    """Tools and queries of one set."""

    tools: list[Tool]
    queries: list[Query]


def mcpproxy(data: Path) -> DataSet:
    """Read the golden set of smart-mcp-proxy/mcpproxy-go, specs/065-evaluation-foundation/datasets."""
    corpus = _json(data / "mcpproxy" / "corpus_v1.tools.json")["tools"]
    tools = [Tool(ToolRef(each["server"], each["tool"]), each["description"], {}) for each in corpus]
    queries = [
        Query(
            each["query"],
            [[ToolRef(*label["tool_id"].split(":", 1))] for label in each["labels"] if label["relevance"] >= 1],
        )
        for each in _json(data / "mcpproxy" / "retrieval_golden_v1.json")["queries"]
    ]
    return DataSet(tools, queries)


def live_mcp_bench(data: Path) -> DataSet:
    """Read icip-cas/LiveMCPBench: whole tasks, each with the tools that its annotator used."""
    tools: list[Tool] = []
    by_name: dict[str, list[ToolRef]] = {}
    for entry in _json(data / "livemcp" / "tools.json"):
        for server, offer in entry["tools"].items():
            for each in offer["tools"]:
                ref = ToolRef(server, each["name"])
                tools.append(Tool(ref, each.get("description") or "", each.get("inputSchema") or {}))
                by_name.setdefault(ref.tool.lower(), []).append(ref)
    queries: list[Query] = []
    for task in _json(data / "livemcp" / "all_annotations.json"):
        lines = task["Annotator Metadata"]["Tools"].splitlines()
        names = [re.sub(r"^\s*\d+[.)]\s*", "", line).strip().lower() for line in lines]
        if wanted := [by_name[name] for name in names if name in by_name]:
            queries.append(Query(task["Question"], wanted))
    return DataSet(tools, queries)


def seal_tools(data: Path) -> DataSet:
    """Read fairyshine/Seal-Tools, Seal-Tools_Dataset: the tests in and out of domain."""
    tools: list[Tool] = []
    for line in (data / "seal" / "tool.jsonl").read_text().splitlines():
        each = json.loads(line)
        ref = ToolRef(each["field"].split("/")[0], each["api_name"])
        tools.append(Tool(ref, each["api_description"], {"properties": each["parameters"]}))
    by_name = {tool.ref.tool: tool.ref for tool in reversed(tools)}
    queries: list[Query] = []
    for part in ("in", "out"):
        for line in (data / "seal" / f"test_{part}_domain.jsonl").read_text().splitlines():
            each = json.loads(line)
            if wanted := [[by_name[call["api"]]] for call in each["calling"] if call["api"] in by_name]:
                queries.append(Query(each["query"], wanted))
    return DataSet(tools, queries)


def meta_tool(data: Path) -> DataSet:
    """Read HowieHwong/MetaTool, dataset."""
    described = _json(data / "metatool" / "plugin_des.json")
    refs = {_letters(name): ToolRef("plugins", name) for name in described}
    tools = [Tool(ToolRef("plugins", name), text, {}) for name, text in described.items()]
    with (data / "metatool" / "all_clean_data.csv").open(newline="") as file:
        rows = [(row["Query"], refs.get(_letters(row["Tool"]))) for row in csv.DictReader(file)]
    return DataSet(tools, [Query(text, [[ref]]) for text, ref in rows if ref is not None])


SETS: dict[str, tuple[Callable[[Path], DataSet], float]] = {
    "mcpproxy-go golden v1": (mcpproxy, 0.80),
    "LiveMCPBench": (live_mcp_bench, 0.45),
    "Seal-Tools": (seal_tools, 0.88),
    "MetaTool": (meta_tool, 0.70),
}
"""Each set with its reader and the goal."""


class PlainBm25:
    """The baseline: BM25 over the stemmed words of name and description, and nothing else."""

    def __init__(self, tools: Sequence[Tool], k1: float = 1.2, b: float = 0.75) -> None:
        self._tools = tools
        words = [Counter(terms(f"{tool.ref.tool} {tool.description}")) for tool in tools]
        lengths = [sum(counted.values()) for counted in words]
        average = sum(lengths) / len(tools)
        self._weights: dict[str, dict[int, float]] = {}
        for number, (counted, length) in enumerate(zip(words, lengths, strict=True)):
            for word, count in counted.items():
                weight = count * (k1 + 1) / (count + k1 * (1 - b + b * length / average))
                self._weights.setdefault(word, {})[number] = weight

    async def find(self, query: str) -> set[ToolRef]:
        """Return the first five tools."""
        scores: dict[int, float] = {}
        for word in terms(query):
            found = self._weights.get(word, {})
            rarity = log(1 + (len(self._tools) - len(found) + 0.5) / (len(found) + 0.5))
            for number, weight in found.items():
                scores[number] = scores.get(number, 0.0) + rarity * weight
        return {self._tools[number].ref for number in nlargest(FOUND, scores, key=lambda at: (scores[at], -at))}


def main(arguments: Sequence[str]) -> int:
    """Print the table. Return 1 if no set was found."""
    directory, *model = [each for each in arguments if each and each != TUNING] or [""]
    search = ToolSearch(StaticEmbeddings(Path(model[0])) if model else None)
    rows = anyio.run(_rows, search, Path(directory), TUNING in arguments) if directory else []
    if not rows:
        print("No sets found: TOOLCRIB_DATA must name a directory laid out as docs/search.md describes.")
        return 1
    columns = "| set | tools | queries | plain BM25 | tuning part | held out | all | goal | CPU per query |"
    print(f"{columns}\n|{'---|' * 9}")
    print("\n".join(rows))
    print(f"\n{anyio.run(_speed, search)}")
    return 0


async def _rows(search: ToolSearch, data: Path, only_tuning: bool) -> list[str]:
    return [row for name in SETS if (row := await _row(search, name, data, only_tuning))]


async def _row(search: ToolSearch, name: str, data: Path, only_tuning: bool) -> str | None:
    read, goal = SETS[name]
    try:
        tools, queries = read(data)
    except FileNotFoundError as error:
        print(f"{name}: skipped, {error.filename} is missing.", file=sys.stderr)
        return None
    listing, plain = _listing(tools), PlainBm25(tools)
    parts = [_sampled([each for each in queries if _part(each.text) == part]) for part in (0, 1)]
    shown = parts[:1] if only_tuning else parts

    async def found(query: str) -> set[ToolRef]:
        return {each.tool.ref for each in await search.find(listing, query, FOUND)}

    await found("")  # builds the index
    before = [(await _recall(plain.find, part))[0] for part in shown]
    after = [await _recall(found, part) for part in shown]
    recalls = [recall for recall, _ in after]
    whole = sum(recall * len(part) for recall, part in zip(recalls, shown, strict=True)) / sum(map(len, shown))
    figures = [f"{recall:.2f}" for recall in (*recalls, whole)] if len(shown) > 1 else [f"{recalls[0]:.2f}", "–", "–"]
    cells = [
        name, str(len(tools)), " + ".join(str(len(part)) for part in parts),
        " / ".join(f"{recall:.2f}" for recall in before), *figures, f"{goal:.2f}", f"{after[-1][1]:.1f} ms",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _listing(tools: Sequence[Tool]) -> Listing:
    return Listing((1, 1), tuple(sorted(tools, key=lambda tool: tool.ref)))


async def _recall(find: Callable[[str], Awaitable[set[ToolRef]]], queries: list[Query]) -> tuple[float, float]:
    """Return the share of the wanted tools among the first five, averaged over queries, and CPU ms per query."""
    total = 0.0
    started = time.process_time()
    for query in queries:
        found = await find(query.text)
        total += sum(not found.isdisjoint(refs) for refs in query.wanted) / len(query.wanted)
    spent = time.process_time() - started
    return total / len(queries), spent / len(queries) * 1_000


async def _speed(search: ToolSearch) -> str:
    """Measure an index over 10,000 made-up tools, and queries over 5,000 of them."""
    objects = ("file", "issue", "event", "message", "page", "invoice", "user", "branch", "table", "image")
    verbs = ("create", "list", "get", "update", "delete", "search", "export", "share", "archive", "compare")
    schema = {"properties": {"id": {"type": "string", "description": "Identifier of the thing."}, "limit": {}}}
    tools = [
        Tool(
            ToolRef(f"server{number // 50}", f"{verbs[number % 10]}_{objects[number // 10 % 10]}_{number}"),
            f"{verbs[number % 10].title()} one {objects[number // 10 % 10]} of the workspace by its identifier.",
            schema,
        )
        for number in range(10_000)
    ]
    started = time.process_time()
    await search.find(_listing(tools), "", FOUND)
    built = time.process_time() - started
    listing = _listing(tools[:5_000])
    sentences = [f"Please {verb} the {thing} that I made yesterday for Anna" for verb in verbs for thing in objects]
    times: list[float] = []
    for _ in range(2):  # the second time with what the first one cached
        started = time.process_time()
        for sentence in sentences:
            await search.find(listing, sentence, FOUND)
        times.append(time.process_time() - started)
    each = times[-1] / len(sentences) * 1_000
    return f"Index of 10,000 tools: {built:.2f} s CPU. Query over 5,000 tools: {each:.1f} ms CPU."


def _part(text: str) -> int:
    return int(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), 16) % 2


def _sampled(queries: list[Query]) -> list[Query]:
    return queries[:: max(1, len(queries) // MOST_QUERIES)][:MOST_QUERIES]


def _letters(name: str) -> str:
    return re.sub(r"\W", "", name.lower())


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
