"""The tools of a listing as functions of a program: unique Python names, and stubs for the type check."""

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from toolcrib.gate.signatures import stub
from toolcrib.model.tools import Tool, ToolRef

HEADER: Final = "from typing import Any, Literal\n"
_NOT_A_NAME: Final = re.compile(r"\W")
_NAME: Final = re.compile(r"[^\W\d]\w*")


def functions_of(tools: Iterable[Tool], name: Callable[[ToolRef], str]) -> dict[str, Tool]:
    """Return the tools by function name: the name on the endpoint, as a Python identifier."""
    found: dict[str, Tool] = {}
    for tool in tools:
        base = _NOT_A_NAME.sub("_", name(tool.ref))
        base = f"_{base}" if base[:1].isdigit() or keyword.iskeyword(base) else base
        unique, number = base, 2
        while unique in found:
            unique, number = f"{base}_{number}", number + 1
        found[unique] = tool
    return found


def stubs_for(code: str, functions: Mapping[str, Tool]) -> str:
    """Return the stubs of the functions whose names occur in a program."""
    named = dict.fromkeys(_NAME.findall(code))
    return HEADER + "\n".join(stub(each, functions[each]) for each in named if each in functions)
