"""The names models see: assigned once per form to a tool or prompt, stored forever, looked up and never parsed.

A name is safe (`A-Z a-z 0-9 _ -`), at most 64 characters and unique within its form. The first tool to take a plain
name keeps it; within one extension ties are resolved by sorted `ToolRef`. Any other tool gets the plain name,
truncated, plus `_` and hex digits of a hash of its identity. Names therefore survive reconnects, restarts and any order
of connection.

The table only grows, so readers need no copy. `extend` adds names and returns the rows that the caller must store
before the tools are published. If another node stored some of them first, `settle` takes its names over.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from toolcrib.model.tools import ToolRef

Form = Literal["claude", "endpoint", "bridge", "prompt"]
TOOL_FORMS: Final[tuple[Form, ...]] = ("claude", "endpoint", "bridge")
PROMPT_FORMS: Final[tuple[Form, ...]] = ("prompt",)
LONGEST = 64
_DIGITS = 6
_SERVER_PART = 24
"""Characters of a server's name in a truncated `claude` name, so that both of its parts remain."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class NameRow(NamedTuple):
    """One assigned name: `name` refers to `server`/`tool` in this form."""

    form: str
    name: str
    server: str
    tool: str


class NameTable:
    """Names and tools (or prompts) of every form, in both directions. Stored entries never change."""

    def __init__(self, rows: Iterable[tuple[str, str, str, str]] = ()) -> None:
        """Build the table from stored rows."""
        self.names: dict[str, dict[ToolRef, str]] = {form: {} for form in (*TOOL_FORMS, *PROMPT_FORMS)}
        self.refs: dict[str, dict[str, ToolRef]] = {form: {} for form in self.names}
        for form, name, server, tool in rows:
            self._add(form, name, ToolRef(server, tool))

    def name(self, form: Form, ref: ToolRef) -> str:
        """Return the name of a tool in the table."""
        return self.names[form][ref]

    def missing(self, refs: Iterable[ToolRef], forms: tuple[Form, ...] = TOOL_FORMS) -> list[ToolRef]:
        """Return the tools among `refs` that lack a name of some form, sorted."""
        asked = set(refs)
        return sorted(set[ToolRef]().union(*(asked.difference(self.names[form]) for form in forms)))

    def extend(self, refs: Iterable[ToolRef], forms: tuple[Form, ...] = TOOL_FORMS) -> tuple[NameRow, ...]:
        """Assign the names these tools lack, and return the new rows."""
        rows: list[NameRow] = []
        for ref in self.missing(refs, forms):
            for form in forms:
                if ref not in self.names[form]:  # a crash may have stored only some of its names
                    name = next(name for name in candidates(form, ref) if name not in self.refs[form])
                    self._add(form, name, ref)
                    rows.append(NameRow(form, name, *ref))
        return tuple(rows)

    def settle(self, stored: Iterable[tuple[str, str, str, str]], pending: Iterable[NameRow]) -> tuple[NameRow, ...]:
        """Take over the names that other nodes stored first, and return the rows that still have to be stored.

        A tool of `pending` whose name is taken gets another one, or the one that it has there.
        """
        known = {(form, ToolRef(server, tool)): name for form, name, server, tool in stored}
        for (form, ref), name in known.items():
            self._remove(form, ref)
            holder = self.refs.setdefault(form, {}).get(name)
            if holder is not None:
                self._remove(form, holder)
            self._add(form, name, ref)
        rows: list[NameRow] = []
        for form in (*TOOL_FORMS, *PROMPT_FORMS):
            refs = sorted({ToolRef(row.server, row.tool) for row in pending if row.form == form})
            left = [ref for ref in refs if (form, ref) not in known]
            self.extend(left, (form,))
            rows += [NameRow(form, self.names[form][ref], *ref) for ref in left]
        return tuple(rows)

    def _remove(self, form: str, ref: ToolRef) -> None:
        name = self.names.setdefault(form, {}).pop(ref, None)
        if name is not None:
            del self.refs[form][name]

    def _add(self, form: str, name: str, ref: ToolRef) -> None:
        self.names.setdefault(form, {})[ref] = name
        self.refs.setdefault(form, {})[name] = ref


def plain_name(form: Form, ref: ToolRef) -> str:
    """Return the name a tool would have without conflicts or a length limit."""
    server, tool = _UNSAFE.sub("_", ref.server), _UNSAFE.sub("_", ref.tool)
    if form == "claude":
        return f"mcp__{server}__{tool}"
    if form == "bridge":
        return f"mcp_{server}_{tool}"
    return tool if tool.startswith(f"{server}_") else f"{server}_{tool}"


def server_name(form: Form, server: str) -> str:
    """Return the prefix that all names of a server's tools share, as people write it for the whole server."""
    safe = _UNSAFE.sub("_", server)
    return f"mcp__{safe}" if form == "claude" else safe


def claude_parts(ref: ToolRef, name: str) -> tuple[str, str]:
    """Return the two parts of a tool's `claude` name, from which a model's runtime composes it again."""
    server = _UNSAFE.sub("_", ref.server)
    part = server if name.startswith(f"mcp__{server}__") else server[:_SERVER_PART]
    return part, name.removeprefix(f"mcp__{part}__")


def _to_cut(form: Form, ref: ToolRef) -> str:
    """Return the text that a name is truncated from if it is too long or taken."""
    plain = plain_name(form, ref)
    if form != "claude" or len(plain) <= LONGEST - 1 - _DIGITS:
        return plain
    return plain_name(form, ToolRef(ref.server[:_SERVER_PART], ref.tool))


def candidates(form: Form, ref: ToolRef) -> Iterator[str]:
    """Yield names to try: the plain one if it fits, then truncated ones with ever more digits of the hash."""
    plain = plain_name(form, ref)
    if len(plain) <= LONGEST:
        yield plain
    digest = hashlib.sha256("\0".join(ref).encode("utf-8", "surrogatepass")).hexdigest()
    long = _to_cut(form, ref)
    for digits in range(_DIGITS, LONGEST - 1):
        yield f"{long[: LONGEST - 1 - digits]}_{digest[:digits]}"
