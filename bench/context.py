"""Context economy: one task with 200 listed tools, in search mode and in code mode; queries, indexing and programs.

`python -m bench.context` prints the table of docs/context.md.

"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import anyio

from bench.report import Row
from toolcrib import Crib, Settings, ToolServer, tool
from toolcrib.gate.costs import definition_tokens
from toolcrib.gate.programs import code_tools
from toolcrib.gate.programs.functions import functions_of
from toolcrib.gate.programs.interpreter import ProgramInterpreter
from toolcrib.gate.programs.runner import ProgramRun
from toolcrib.gate.search import search_tools
from toolcrib.gate.search.index import ToolIndex, build_index
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.principals import Principal
from toolcrib.model.token_estimate import estimate_bytes
from toolcrib.model.tools import CallResult, Tool, ToolRef

Made = TypeVar("Made")

TOOLS = 200
TICKETS = 20
RUNS = 20
_VERBS = ("create", "list", "get", "update", "delete", "search", "export", "share", "archive", "compare")
_NOUNS = ("file", "issue", "event", "message", "page", "invoice", "user", "branch", "table", "image")
_PROGRAM = f"""
tickets = [await desk_read_ticket(number=number) for number in range({TICKETS})]
[ticket["number"] for ticket in tickets if ticket["state"] == "open"]
"""


@tool(read_only=True)
async def read_ticket(number: int) -> dict[str, object]:
    """Return a help desk ticket: its state, its author and its whole text."""
    return {"number": number, "state": "open" if number % 3 else "closed", "author": "ann", "text": "It broke. " * 150}


@dataclass
class Spent:
    """The tokens and calls of one way of doing the task."""

    definitions: int
    messages: int = 0
    round_trips: int = 0

    def add(self, sent: JsonObject, result: CallResult) -> None:
        """Count one call of the model: its arguments, and the result that it reads."""
        self.messages += estimate_bytes(len(dumps(sent))) + estimate_bytes(len(dumps(list(result.content))))
        self.round_trips += 1


def sample_tool(number: int) -> Tool:
    """Return one of many tools of ordinary size."""
    verb, noun = _VERBS[number % 10], _NOUNS[number // 10 % 10]
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": f"The identifier of the {noun}, as the list returns it."},
            "workspace": {"type": "string", "description": "The workspace; the default one if it is left out."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "At most this many results."},
        },
        "required": ["id"],
    }
    text = f"{verb.title()} a {noun} of the workspace by its identifier. Use it when the user asks to {verb} a {noun}."
    return Tool(ToolRef(f"server{number // 50}", f"{verb}_{noun}_{number}"), text, schema)


def index_of(tools: list[Tool]) -> ToolIndex:
    """Index tools that are sorted by server."""
    return ToolIndex([build_index(list(group)) for _, group in groupby(tools, key=lambda each: each.ref.server)])


async def with_crib(
    folder: Path, work: Callable[[Crib, Principal, ProgramInterpreter], Awaitable[list[Made]]]
) -> list[Made]:
    """Run `work` with a crib that has the tool of the task."""
    interpreter = ProgramInterpreter()
    async with Crib(Settings(home=folder)) as crib:
        crib.register(ToolServer("desk", tools=[read_ticket]))
        try:
            return await work(crib, crib.owner(source="cli"), interpreter)
        finally:
            await interpreter.close()


async def compare(crib: Crib, owner: Principal, interpreter: ProgramInterpreter) -> list[str]:
    """Do one task in three ways, and return the rows of a table."""
    ticket = crib.gate.find(owner, ToolRef("desk", "read_ticket"))
    tools = sorted([*(sample_tool(number) for number in range(TOOLS - 1)), ticket], key=lambda each: each.ref)
    names = {each.ref: f"{each.ref.server}_{each.ref.tool}" for each in tools}
    listed = Spent(sum(definition_tokens(names[each.ref], each) for each in tools))
    search = Spent(sum(estimate_bytes(len(dumps(each))) for each in search_tools.DEFINITIONS))
    code = Spent(sum(estimate_bytes(len(dumps(each))) for each in code_tools.DEFINITIONS))
    query: JsonObject = {"query": "read the tickets of the help desk", "limit": 5}
    index = index_of(tools)
    for spent, functions in ((search, None), (code, names)):
        found = search_tools.found_result(index.search(query["query"], 5), query["query"], (), functions)
        spent.add(query, found)
    for number in range(TICKETS):
        called = await crib.gate.call(owner, ticket.ref, {"number": number}, door="library")
        listed.add({"number": number}, called.result)
        search.add({"ref": str(ticket.ref), "arguments": {"number": number}}, called.result)
    named = functions_of([ticket], names.__getitem__)
    code.add({"tools": ["desk_read_ticket"]}, code_tools.described({"tools": ["desk_read_ticket"]}, named))
    code.add({"code": _PROGRAM}, await ProgramRun(crib.gate, interpreter, owner, _PROGRAM, door="library").run())
    return [
        f"| {title} | {spent.definitions:,} | {spent.messages:,} | {spent.round_trips} |"
        for title, spent in (("all tools listed", listed), ("search mode", search), ("code mode", code))
    ]


async def program_rows(crib: Crib, owner: Principal, interpreter: ProgramInterpreter) -> list[Row]:
    """Measure a program with three calls."""
    code = "[(await desk_read_ticket(number=number))['state'] for number in range(3)]"
    await ProgramRun(crib.gate, interpreter, owner, code, door="library").run()
    started = time.perf_counter()
    for _ in range(RUNS):
        await ProgramRun(crib.gate, interpreter, owner, code, door="library").run()
    return [Row("run_code, three calls", "ms", (time.perf_counter() - started) / RUNS * 1_000, limit=50)]


def measure_context(folder: Path) -> list[Row]:
    """Measure searching, indexing and programs."""
    tools = [sample_tool(number) for number in range(10_000)]
    started = time.process_time()
    index_of(tools)
    rows = [Row("index 10,000 tools, CPU", "s", time.process_time() - started, limit=1)]
    index = index_of(tools[:5_000])
    sentences = [f"Please {verb} the {noun} that I made for Anna" for verb in _VERBS for noun in _NOUNS]
    for sentence in sentences:
        index.search(sentence, 10)
    started = time.process_time()
    for sentence in sentences:
        index.search(sentence, 10)
    spent = (time.process_time() - started) / len(sentences) * 1_000
    rows.append(Row("find among 5,000 tools, CPU per query", "ms", spent, limit=2))
    return rows + anyio.run(partial(with_crib, folder / "context", program_rows))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        print("| way | tokens of definitions | tokens of calls and results | round trips |\n|---|---|---|---|")
        print("\n".join(anyio.run(partial(with_crib, Path(temporary), compare))))
