"""The names models see: made once per tool or prompt and form, kept for ever, looked up and never parsed.

A name is safe (`A-Z a-z 0-9 _ -`), at most 64 characters and unique within its form. The first tool to take a plain
name keeps it; within one extension ties go by sorted `ToolRef`; any other tool gets the plain name cut short plus `_`
and hex digits of a hash of its identity. So names survive reconnects, restarts and any order of connection.

The table is a value: `extend` returns a larger one together with the rows that somebody above has to store.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from toolcrib.model.tools import ToolRef

Form = Literal["claude", "endpoint", "bridge", "prompt"]
TOOL_FORMS: Final[tuple[Form, ...]] = ("claude", "endpoint", "bridge")
PROMPT_FORMS: Final[tuple[Form, ...]] = ("prompt",)
LONGEST = 64
_DIGITS = 6
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class NameRow(NamedTuple):
    """One taken name: `name` means `server`/`tool` wherever the form is used."""

    form: str
    name: str
    server: str
    tool: str


@dataclass(frozen=True, slots=True)
class NameTable:
    """Names and tools (or prompts) of every form, in both directions."""

    names: Mapping[tuple[str, ToolRef], str] = field(default_factory=dict[tuple[str, ToolRef], str])
    refs: Mapping[tuple[str, str], ToolRef] = field(default_factory=dict[tuple[str, str], ToolRef])

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str, str]]) -> "NameTable":
        """The table that these stored rows make."""
        rows = list(rows)
        names = {(form, ToolRef(server, tool)): name for form, name, server, tool in rows}
        return cls(names, {(form, name): ToolRef(server, tool) for form, name, server, tool in rows})

    def name(self, form: Form, ref: ToolRef) -> str:
        """The name of a tool that is in the table."""
        return self.names[form, ref]

    def ref(self, form: Form, name: str) -> ToolRef | None:
        """The tool of a name, if the name was ever given."""
        return self.refs.get((form, name))

    def extend(
        self, refs: Iterable[ToolRef], forms: tuple[Form, ...] = TOOL_FORMS
    ) -> tuple["NameTable", tuple[NameRow, ...]]:
        """This table with names for these tools too, and the rows that are new."""
        missing = sorted(ref for ref in set(refs) if (forms[0], ref) not in self.names)
        if not missing:
            return self, ()
        names, taken = dict(self.names), dict(self.refs)
        rows: list[NameRow] = []
        for form in forms:
            for ref in missing:
                name = next(name for name in candidates(form, ref) if (form, name) not in taken)
                names[form, ref] = name
                taken[form, name] = ref
                rows.append(NameRow(form, name, *ref))
        return NameTable(names, taken), tuple(rows)


def plain_name(form: Form, ref: ToolRef) -> str:
    """The name a tool would have if it were alone and length did not matter."""
    server, tool = _UNSAFE.sub("_", ref.server), _UNSAFE.sub("_", ref.tool)
    if form == "claude":
        return f"mcp__{server}__{tool}"
    if form == "bridge":
        return f"mcp_{server}_{tool}"
    return tool if tool.startswith(f"{server}_") else f"{server}_{tool}"


def server_name(form: Form, server: str) -> str:
    """What all names of a server's tools begin with, as people write it for the whole server."""
    safe = _UNSAFE.sub("_", server)
    return f"mcp__{safe}" if form == "claude" else safe


def candidates(form: Form, ref: ToolRef) -> Iterator[str]:
    """The names a tool tries in order: plain where it fits, then cut and marked with ever more digits of its hash."""
    plain = plain_name(form, ref)
    if len(plain) <= LONGEST:
        yield plain
    digest = hashlib.sha256("\0".join(ref).encode("utf-8", "surrogatepass")).hexdigest()
    for digits in range(_DIGITS, LONGEST - 1):
        yield f"{plain[: LONGEST - 1 - digits]}_{digest[:digits]}"
