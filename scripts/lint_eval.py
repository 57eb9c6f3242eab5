"""Measure the lint of tool definitions on public sets: recall, precision and false findings per set, and its cost.

Usage: lint_eval.py DATA [--list PART]. `DATA` is a directory with clones of the repositories in `SETS`; docs/lint.md
lists them. A set that is absent is skipped and reported. A quarter of each set is held out, by a hash of the id and a
hash of the description of each case. The patterns are written with the other cases only, the held-out ones measured.
"""

import argparse
import ast
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from toolcrib.gate.pins.lint import clashes, holding, lint, looks_of, telling_names
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.tools import Tool, ToolRef

Label = Literal["malicious", "hard", "benign"]
Part = Literal["development", "held-out"]
PARTS: tuple[Part, ...] = ("development", "held-out")
_OWN = "judged"
_TIMED = 5000
_ROUNDS = 3


class Case(NamedTuple):
    """A definition with its label, and the tools of other servers beside it."""

    id: str
    label: Label
    tool: Tool
    peers: Sequence[ToolRef] = ()

    @property
    def part(self) -> Part:
        """Return the part of the set that the case belongs to."""
        id_is_odd = hashlib.sha256(self.id.encode()).digest()[0] % 2
        text_is_odd = hashlib.sha1(self.tool.description.encode(), usedforsecurity=False).digest()[-1] % 2
        return PARTS[id_is_odd and text_is_odd]

    def findings(self) -> Sequence[Problem]:
        """Return the findings that hold back a new tool with this definition."""
        alike = clashes([self.tool.ref], looks_of(self.peers))
        return holding(lint(self.tool, telling_names(self.peers), alike))


def _tool(name: str, description: str, schema: JsonObject | None = None, server: str = _OWN) -> Tool:
    return Tool(ToolRef(server, name), description, schema or {"type": "object", "properties": {}}, "upstream")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _label(entry: dict[str, str]) -> Label:
    if entry["category"] == "hard_negative":
        return "hard"
    return "malicious" if entry["label"] == "malicious" else "benign"


def _detect(data: Path) -> Iterator[Case]:
    path = data / "mcpproxy-go/specs/065-evaluation-foundation/datasets/detect_corpus_v1.json"
    for entry in _json(path)["entries"]:
        tool = entry["tool"]
        made = _tool(tool["name"], tool.get("description", ""), tool.get("inputSchema"), entry["server"])
        peers = [ToolRef(peer["server"], peer["tool"]["name"]) for peer in entry.get("peers", ())]
        yield Case(entry["id"], _label(entry), made, peers)


def _security(data: Path) -> Iterator[Case]:
    path = data / "mcpproxy-go/specs/065-evaluation-foundation/datasets/security_corpus_v1.json"
    for entry in _json(path)["entries"]:
        yield Case(entry["id"], _label(entry), _tool("tool", entry["description"]))


def _scanner_malicious(data: Path) -> Iterator[Case]:
    path = data / "mcp-scanner/evals/remote/malicious/malicious_mcp_server.py"
    return (Case(tool.ref.tool, "malicious", tool) for tool in _python_tools(path))


def _scanner_benign(data: Path) -> Iterator[Case]:
    for path in sorted((data / "mcp-scanner/evals/remote/benign").glob("*.py")):
        yield from (Case(f"{path.stem}/{tool.ref.tool}", "benign", tool) for tool in _python_tools(path))


def _scanner_code(data: Path) -> Iterator[Case]:
    root = data / "mcp-scanner/evals/behavioral-analysis/data"
    for path in sorted(root.glob("*/*.py")):
        for tool in _python_tools(path):
            yield Case(f"{path.parent.name}/{path.name}/{tool.ref.tool}", "malicious", tool)


def _msb(data: Path) -> Iterator[Case]:
    """Yield the definitions of the attacks that are in the definition: preference, parameters, names, injection."""
    root = data / "MSB/data"
    template = _constant(root / "prompt_template.py", "PROMPT_INJECTION_TEMPLATE")
    goals = [json.loads(line) for line in (root / "attack_task.jsonl").read_text(encoding="utf-8").splitlines()]
    for server in sorted((root / "tools/attack_tools").glob("*/*/")):
        plain = {
            tool.ref.tool: tool for path in server.glob("*.py") if "-" not in path.stem for tool in _python_tools(path)
        }
        for attack, tool in _msb_attacks(server):
            peers = [ToolRef("genuine", name) for name in plain] if attack == "name_overlap" else ()
            yield Case(f"{server.name}/{attack}/{tool.ref.tool}", "malicious", tool, peers)
        for tool in plain.values():
            yield Case(f"{server.name}/{tool.ref.tool}", "benign", tool)
            for goal in goals:
                text = tool.description + template.replace("{goal}", goal["implementation"])
                made = _tool(tool.ref.tool, text, tool.input_schema)
                yield Case(f"{server.name}/injection/{goal['attack_task']}/{tool.ref.tool}", "malicious", made)


_MSB_ATTACKS = (
    *("name_overlap", "out_of_scope_parameter", "preference_manipulation-out_of_scope_parameter"),
    "preference_manipulation",
)


def _msb_attacks(server: Path) -> Iterator[tuple[str, Tool]]:
    """Yield attacks with their definitions. One server registers those of each attack in a function of its own."""
    for attack in _MSB_ATTACKS:
        for path in server.glob("*.py"):
            if path.stem.partition("-")[2] != attack:
                continue
            module = _parsed(path)
            register = f"register_tools_{attack.replace('-', '_')}"
            functions = [node for node in ast.walk(module) if getattr(node, "name", None) == register]
            yield from ((attack, tool) for root in functions or [module] for tool in _tools_in(root))


def _registry(data: Path) -> Iterator[Case]:
    for path in sorted((data / "mcp-registry/servers").glob("*/tools.json")):
        for entry in cast("list[dict[str, Any]]", _json(path)):
            yield Case(f"{path.parent.name}/{entry['name']}", "benign", _registry_tool(entry))


def _registry_tool(entry: dict[str, Any]) -> Tool:
    arguments = entry.get("arguments") or ()
    properties = {each["name"]: {"type": each.get("type"), "description": each.get("desc") or ""} for each in arguments}
    schema = entry.get("inputSchema") or {"type": "object", "properties": properties}
    return _tool(entry["name"], entry.get("description") or "", schema)


def _live(data: Path) -> Iterator[Case]:
    for listed in _json(data / "LiveMCPBench/tools/LiveMCPTool/tools.json"):
        for server, offered in listed["tools"].items():
            for entry in offered["tools"]:
                made = _tool(entry["name"], entry.get("description") or "", entry.get("inputSchema"))
                yield Case(f"{server}/{entry['name']}", "benign", made)


def _seal(data: Path) -> Iterator[Case]:
    with (data / "Seal-Tools/Seal-Tools_Dataset/tool.jsonl").open(encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            schema = {"type": "object", "properties": entry["parameters"]}
            yield Case(entry["api_name"], "benign", _tool(entry["api_name"], entry["api_description"], schema))


SETS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "mcpproxy-go detect": _detect,
    "mcpproxy-go security": _security,
    "mcp-scanner malicious": _scanner_malicious,
    "MSB": _msb,
    "mcp-scanner benign": _scanner_benign,
    "mcp-registry": _registry,
    "LiveMCPBench": _live,
    "Seal-Tools": _seal,
    "mcp-scanner code": _scanner_code,
}
"""The sets, in the order of the table. In the last one the code is malicious; most definitions are plain."""
_INFORMATIVE = ("mcp-scanner code",)
"""Sets that are not part of the totals."""


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _constant(path: Path, name: str) -> str:
    for node in _parsed(path).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) == name for target in node.targets):
            return str(ast.literal_eval(node.value))
    raise LookupError(name)


def _python_tools(path: Path) -> Iterator[Tool]:
    return _tools_in(_parsed(path))


def _tools_in(root: ast.AST) -> Iterator[Tool]:
    """Yield the tools of a FastMCP program. The program is parsed and never run."""
    for node in ast.walk(root):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(".tool" in ast.unparse(decorator) for decorator in node.decorator_list):
            names = [each.arg for each in (*node.args.args, *node.args.kwonlyargs) if each.arg not in ("self", "ctx")]
            properties: JsonObject = {name: {"type": "string"} for name in names}
            description = ast.get_docstring(node) or ""
            yield _tool(node.name, description, {"type": "object", "properties": properties})


class Counts(NamedTuple):
    """How many cases of each label there are, and how many have findings."""

    total: Counter[str]
    flagged: Counter[str]

    @classmethod
    def of(cls, cases: Iterable[Case]) -> "Counts":
        """Judge the cases."""
        total: Counter[str] = Counter()
        flagged: Counter[str] = Counter()
        for case in cases:
            total[case.label] += 1
            flagged[case.label] += bool(case.findings())
        return cls(total, flagged)

    def row(self, name: str, part: Part) -> str:
        """Return a row of the table."""
        found = self.flagged.total()
        precision = f"{self.flagged['malicious'] / found:.2f}" if found and self.total["malicious"] else "–"
        recall = f"{self.flagged['malicious'] / self.total['malicious']:.2f}" if self.total["malicious"] else "–"
        cells = [f"{self.flagged[label]}/{self.total[label]}" if self.total[label] else "–" for label in LABELS]
        return f"| {name} | {part} | {' | '.join(cells)} | {recall} | {precision} |"


LABELS: tuple[Label, ...] = ("malicious", "hard", "benign")


def _milliseconds(tools: Sequence[Tool]) -> float:
    """Return the time to lint one of `tools`, the best of a few rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.process_time()
        for tool in tools:
            lint(tool)
        best = min(best, time.process_time() - start)
    return best * 1000 / len(tools)


def _print_table(sets: dict[str, list[Case]]) -> None:
    print("| set | part | malicious found | hard negatives flagged | benign flagged | recall | precision |")
    print("|---|---|---|---|---|---|---|")
    for name, cases in sets.items():
        for part in PARTS:
            print(Counts.of(case for case in cases if case.part == part).row(name, part))
    judged = [case for name, cases in sets.items() if name not in _INFORMATIVE for case in cases]
    for part in PARTS:
        print(Counts.of(case for case in judged if case.part == part).row("**all but the last**", part))


def _print_mistakes(sets: dict[str, list[Case]], part: Part) -> None:
    for name, cases in sets.items():
        for case in (each for each in cases if each.part == part):
            found = case.findings()
            if bool(found) != (case.label == "malicious"):
                reasons = "; ".join(problem.message for problem in found) or repr(case.tool.description[:300])
                print(f"{name} · {case.label} · {case.id}: {reasons}")


def main() -> int:
    """Print the table, or the mistakes in one part."""
    parser = argparse.ArgumentParser(description="Measure the lint of tool definitions.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--list", choices=PARTS, dest="part", help="print each mistake in this part")
    options = parser.parse_args()
    sets: dict[str, list[Case]] = {}
    for name, read in SETS.items():
        try:
            cases = list(read(options.data))
        except FileNotFoundError:
            cases = []
        if cases:
            sets[name] = cases
        else:
            print(f"Skipped {name}: not found in {options.data}.", file=sys.stderr)
    if not sets:
        return 1
    if options.part:
        _print_mistakes(sets, options.part)
        return 0
    _print_table(sets)
    benign = [case.tool for cases in sets.values() for case in cases if case.label == "benign"][:_TIMED]
    if benign:
        print(f"\n{_milliseconds(benign):.3f} ms for each of {len(benign)} benign definitions.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
