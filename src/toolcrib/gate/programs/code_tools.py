"""The tools of search mode and code mode: `find_tools`, `call_tool`, `describe_tools` with stubs, and `run_code`.

MCP clients and the crib's own sessions use the same ones. Must never look at tools that the principal does not see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolcrib.gate.gate import Gate
from toolcrib.gate.programs.functions import functions_of
from toolcrib.gate.programs.runner import LONGEST_CODE
from toolcrib.gate.search import search_tools
from toolcrib.gate.search.search_tools import FIND, FIND_DEFINITION
from toolcrib.gate.signatures import stub
from toolcrib.model.agents import ListingMode
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Marks, Tool, ToolRef

DESCRIBE = "describe_tools"
RUN = "run_code"
CRIB: Final = "toolcrib"
"""The server of these tools in sessions."""
MOST_DESCRIBED = 30
INSTRUCTIONS = (
    f"Find tools with `{FIND}`, read their Python signatures with `{DESCRIBE}`, then call them in one program with "
    f"`{RUN}`. Prefer one program with loops and filters over many small ones: only what it prints and returns "
    "reaches you."
)

DESCRIBE_DEFINITION: JsonObject = {
    "name": DESCRIBE,
    "description": "Return tools as typed asynchronous Python functions with documentation.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MOST_DESCRIBED,
                "description": f"The `function` or `ref` of each tool, as `{FIND}` names it.",
            }
        },
        "required": ["tools"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

RUN_DEFINITION: JsonObject = {
    "name": RUN,
    "description": "Run a Python program in a sandbox. Every tool is an asynchronous function with keyword "
    "arguments, such as `await github_create_issue(title='…')`; `asyncio.gather` runs calls at the same time. A "
    "call returns structured content, parsed JSON or text; a failed call raises an exception. There are no files, "
    "no network and no imports beyond the standard library. Print what you need, or end with an expression: both "
    "are returned. Calls that read run at once. Calls that need approval are collected and approved as one set, "
    "with exactly these arguments, and the program then runs again from its start.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": LONGEST_CODE, "description": "The program."},
            "dry_run": {
                "type": "boolean",
                "default": False,
                "description": "Only make calls that read, and return the calls that would be made.",
            },
        },
        "required": ["code"],
        "additionalProperties": False,
    },
}

DEFINITIONS: tuple[JsonObject, ...] = (FIND_DEFINITION, DESCRIBE_DEFINITION, RUN_DEFINITION)


def _tool(definition: JsonObject) -> Tool:
    marks = Marks(read_only="annotations" in definition, always_load=True)
    ref = ToolRef(CRIB, definition["name"])
    return Tool(ref, definition["description"], definition["inputSchema"], "builtin", marks=marks)


_TOOLS: Final[Mapping[ListingMode, tuple[Tool, ...]]] = {
    "search": tuple(map(_tool, search_tools.DEFINITIONS)),
    "code": tuple(map(_tool, DEFINITIONS)),
}
"""The tools as sessions offer them, by what the agent lists."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A program to run."""

    code: str
    dry_run: bool = False


async def find(gate: Gate, principal: Principal, arguments: JsonObject, *, by_code: bool) -> CallResult:
    """Return the tools that match a query. In code mode, each has the name of its function in programs."""
    asked = search_tools.read_query(arguments)
    if isinstance(asked, CallResult):
        return asked
    query, limit = asked
    found = await gate.search.find(gate.listing(principal), query, limit)
    names = {tool.ref: name for name, tool in functions(gate, principal).items()} if by_code else None
    return search_tools.found_result(found, query, gate.servers(principal), names)


def functions(gate: Gate, principal: Principal) -> Mapping[str, Tool]:
    """Return the tools of a principal by their function names in programs."""
    return functions_of(gate.listing(principal).tools, partial(gate.name, "endpoint"))


def tools_of(mode: ListingMode) -> tuple[Tool, ...]:
    """Return the tools that a session is offered in place of all others; none if it lists all."""
    return _TOOLS.get(mode, ())


def instructions_of(mode: ListingMode) -> str:
    """Return how to use these tools."""
    return {"search": search_tools.INSTRUCTIONS, "code": INSTRUCTIONS}.get(mode, "")


def read_program(arguments: JsonObject) -> ProgramRequest | CallResult:
    """Return the program to run, or an error result if the arguments are invalid."""
    if (undeclared := CallResult.for_undeclared(RUN_DEFINITION, arguments)) is not None:
        return undeclared
    code: Json = arguments.get("code")
    dry_run: Json = arguments.get("dry_run", False)
    if not isinstance(code, str) or not code.strip() or len(code) > LONGEST_CODE:
        return CallResult.error(f"code: a program of at most {LONGEST_CODE:,} characters is needed.")
    if not isinstance(dry_run, bool):
        return CallResult.error("dry_run: true or false is needed.")
    return ProgramRequest(code, dry_run)


def described(arguments: JsonObject, functions: Mapping[str, Tool]) -> CallResult:
    """Return the stubs of tools, by function name or ref. Unknown names are listed."""
    if (undeclared := CallResult.for_undeclared(DESCRIBE_DEFINITION, arguments)) is not None:
        return undeclared
    asked: Json = arguments.get("tools")
    if not is_array(asked) or not 1 <= len(asked) <= MOST_DESCRIBED or not all(isinstance(name, str) for name in asked):
        return CallResult.error(f"tools: a list of 1 to {MOST_DESCRIBED} names is needed.")
    by_ref = {str(tool.ref): name for name, tool in functions.items()}
    names = {name: name if name in functions else by_ref.get(name) for name in asked}
    parts = [stub(name, functions[name]) for name in names.values() if name is not None]
    unknown = [name for name, function in names.items() if function is None]
    if unknown:
        parts.append(f"# Unknown: {', '.join(unknown)}. Find tools with `{FIND}`.")
    return CallResult.text("\n\n".join(parts), is_error=len(unknown) == len(names))
