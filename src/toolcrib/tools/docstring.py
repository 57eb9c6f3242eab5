"""Splits a docstring into the description of a tool and of its parameters.

Only the `Args:` section of Google style is parsed; everything else stays in the description.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Doc:
    """A parsed docstring: the description, and one text per parameter."""

    description: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def read_doc(function: Callable[..., Any], parameters: Collection[str]) -> Doc:
    """Parse the function's docstring. An `Args:` section with unknown parameters stays in the description."""
    return split_doc(inspect.cleandoc(function.__doc__ or ""), parameters)


def split_doc(text: str, parameters: Collection[str]) -> Doc:
    """Extract the `Args:` section of a clean docstring."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADING.fullmatch(line)), None)
    if start is None:
        return Doc(text)
    end = next((n for n in range(start + 1, len(lines)) if lines[n] and not lines[n][0].isspace()), len(lines))
    found = _entries(lines[start + 1 : end])
    if not found or not found.keys() <= set(parameters):
        return Doc(text)
    before = "\n".join(lines[:start]).rstrip()
    after = "\n".join(lines[end:]).strip()
    return Doc("\n\n".join(part for part in (before, after) if part), found)


def _entries(lines: list[str]) -> dict[str, str]:
    """Parse `name: text` or `name (type): text` with continuation lines; returns {} for other content."""
    block = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    found: dict[str, list[str]] = {}
    texts: list[str] | None = None
    for line in block:
        if not line.strip():
            continue
        if line[0].isspace():
            if texts is None:
                return {}
            texts.append(line.strip())
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return {}
        texts = found[entry["name"]] = [entry["text"].strip()]
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}
