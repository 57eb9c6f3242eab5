"""Check the language: the rates of words that make prose hard to read, and the names of tests.

The rates are per 10,000 words of docstrings and comments (`src`, and all trees with tests), Markdown (`docs` and the
pages at the root) and templates. The limits are those measured over the MCP SDK, Starlette, Datasette and svcs. The
name of a test has at most 80 characters and none of these words.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TEMPLATES = SOURCE / "toolcrib" / "web" / "console" / "templates"
TEST_TREES = ("tests", "bench", "examples", "scripts")
THIRD_PARTY = ROOT / "tests" / "upstreams" / "everything"
"""A copy of code by others, which is not checked."""
NAME_LENGTH = 80
"""The most characters in the name of a test."""
_WORD = re.compile(r"[A-Za-z][A-Za-z'’]*")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_TAG = re.compile(r"\{[%#{].*?[%#}]\}|<script.*?</script>|<[^>]*>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marker:
    """Words that are counted together, with their highest allowed rate."""

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


def prose_of(files: Iterable[Path]) -> str:
    """Return all prose of some modules, without code in backticks."""
    texts = (path.read_text(encoding="utf-8") for path in files)
    return _CODE.sub(" ", "\n".join(part for text in texts for part in prose_of_module(text)))


def checked_files() -> list[Path]:
    """Return the modules of the trees with tests."""
    files = (path for tree in TEST_TREES for path in sorted((ROOT / tree).rglob("*.py")))
    return [path for path in files if not path.is_relative_to(THIRD_PARTY)]


def name_complaints(name: str) -> list[str]:
    """Return what is wrong with the name of a test."""
    long = [f"{name}: {len(name)} characters, at most {NAME_LENGTH}"] if len(name) > NAME_LENGTH else []
    words = sorted({word for marker in MARKERS for word in marker.words} & {*name.split("_")})
    return [*long, *(f'{name}: contains "{word}"' for word in words)]


def names_of_tests(text: str) -> list[str]:
    """Return the names of the tests in a module."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, functions))
    return [node.name for node in nodes if node.name.startswith("test_")]


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
    """Return the rate of the words that begin a good docstring of a function."""
    words = [word.lower() for word in _WORD.findall(text)]
    return 10_000 * sum(word in {"return", "returns", "raise", "raises"} for word in words) / max(len(words), 1)


def complaints(texts: Mapping[str, str]) -> list[str]:
    """Return a line for every rate that is out of its range. The keys of `texts` name the places."""
    found = [
        f"{where}: {marker.label}: {rate:.1f} per 10,000 words, at most {marker.limit}"
        for where, text in texts.items()
        for marker in MARKERS
        if (rate := rates(text)[marker.label]) > marker.limit
    ]
    returns = rate_of_returns(texts["src"])
    return found if returns >= RETURNS else [*found, f"src: return(s), raise(s): {returns:.1f}, at least {RETURNS}"]


def main() -> int:
    """Print every rate that is out of its range and every bad name of a test. Return 1 if there is one."""
    files = checked_files()
    source = sorted(SOURCE.rglob("*.py"))
    found = complaints({"src": prose_of(source), "docs": page_prose(), "tests": prose_of(files)})
    for path in files:
        names = names_of_tests(path.read_text(encoding="utf-8")) if path.name.startswith("test_") else []
        found += [f"{path.relative_to(ROOT)}: {each}" for name in names for each in name_complaints(name)]
    print("\n".join(found) or "The prose keeps to the style counts.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
