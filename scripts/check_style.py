"""Count the words that make our prose hard to read, and fail where a text uses more of them than good codebases do.

The rates are per 10,000 words of docstrings and comments (`src`), Markdown (`docs` and the pages at the root) and
templates. The limits are those measured over the MCP SDK, Starlette, Datasette and svcs.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TEMPLATES = SOURCE / "toolcrib" / "web" / "console" / "templates"
_WORD = re.compile(r"[A-Za-z][A-Za-z'’]*")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_TAG = re.compile(r"\{[%#{].*?[%#}]\}|<script.*?</script>|<[^>]*>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marker:
    """Words that are counted together, with the highest rate that is allowed."""

    label: str
    words: frozenset[str]
    limit: float


MARKERS = (
    Marker("somebody, nobody, whoever …", frozenset({"somebody", "nobody", "anybody", "everybody", "whoever"}), 0.2),
    Marker("told, tell", frozenset({"told", "tell", "tells"}), 0.7),
    Marker("says, said", frozenset({"says", "said"}), 1.5),
    Marker("stands", frozenset({"stands"}), 3.0),
    Marker("gives", frozenset({"gives"}), 1.3),
)
RETURNS = 49.0
"""The lowest rate of "return", "returns" and "raises" in docstrings and comments."""


def prose_of_module(text: str) -> Iterator[str]:
    """Yield the docstrings, the strings that document attributes, and the comments of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def source_prose() -> str:
    """Return all prose of the program's own modules, without code in backticks."""
    modules = (path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    return _CODE.sub(" ", "\n".join(part for text in modules for part in prose_of_module(text)))


def page_prose() -> str:
    """Return the text of all Markdown pages and templates, without code and markup."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    markdown = "\n".join(_CODE.sub(" ", path.read_text(encoding="utf-8")) for path in sorted(pages))
    templates = "\n".join(_TAG.sub(" ", path.read_text(encoding="utf-8")) for path in sorted(TEMPLATES.rglob("*.html")))
    return f"{markdown}\n{templates}"


def rates(text: str) -> dict[str, float]:
    """Return the rate of each marker in a text, per 10,000 words."""
    words = [word.lower() for word in _WORD.findall(text)]
    total = max(len(words), 1)
    return {each.label: 10_000 * sum(word in each.words for word in words) / total for each in MARKERS}


def rate_of_returns(text: str) -> float:
    """Return the rate of the words that a docstring of a function should begin with."""
    words = [word.lower() for word in _WORD.findall(text)]
    return 10_000 * sum(word in {"return", "returns", "raise", "raises"} for word in words) / max(len(words), 1)


def complaints(texts: Mapping[str, str]) -> list[str]:
    """Return a line for every rate that is out of its range; `texts` are prose by where it is from."""
    found = [
        f"{where}: {marker.label}: {rate:.1f} per 10,000 words, at most {marker.limit}"
        for where, text in texts.items()
        for marker in MARKERS
        if (rate := rates(text)[marker.label]) > marker.limit
    ]
    returns = rate_of_returns(texts["src"])
    return found if returns >= RETURNS else [*found, f"src: return(s), raise(s): {returns:.1f}, at least {RETURNS}"]


def main() -> int:
    """Print every rate that is out of its range; return 1 if there is one."""
    found = complaints({"src": source_prose(), "docs": page_prose()})
    print("\n".join(found) or "The prose keeps to the style counts.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
