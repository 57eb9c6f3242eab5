"""Verdicts and requests of the bench. The measurements themselves are never asserted."""

import ast
import json
import subprocess
from pathlib import Path

from bench.client import FIRST_ID, Address, prepare
from bench.report import Row, table, write
from bench.subjects import ROOT, light_upstream_command
from bench.symbols import write_code
from bench.tool_schemas import Shape, many_schema
from bench.tools import write_echo, write_many


def test_verdict_compares_the_ratio_or_the_value_with_the_limit() -> None:
    assert Row("cpu", "ms", 0.3, 0.5, limit=0.7, judged_by_ratio=True).verdict == "OK"
    assert Row("cpu", "ms", 0.4, 0.5, limit=0.7, judged_by_ratio=True).verdict == "MISS"
    assert Row("memory", "MB", 90, 70, limit=110).verdict == "OK"
    assert Row("memory", "MB", 111, limit=110).verdict == "MISS"
    assert Row("calls", "1/s", 3000, 2000).verdict == ""


def test_verdict_supports_lower_limits_and_missing_values() -> None:
    assert Row("peer", "×", 4.1, limit=4, at_least=True).verdict == "OK"
    assert Row("peer", "×", 3.9, limit=4, at_least=True).verdict == "MISS"
    absent = Row("peer", "×", None, limit=4, at_least=True)
    assert absent.verdict == ""
    assert table([absent]).splitlines()[2].split() == ["peer", "×", "not", "installed", "≥", "4", "×"]


def test_light_upstream_answers_in_both_eras_and_lists_in_pages() -> None:
    requests: list[tuple[str, Shape]] = [
        ("server/discover", {}),
        ("initialize", {"protocolVersion": "2025-11-25"}),
        ("tools/list", {}),
        ("tools/list", {"cursor": "500"}),
        ("tools/call", {"arguments": {"text": "hello"}}),
        ("resources/list", {}),
    ]
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(requests)
    )
    done = subprocess.run(
        light_upstream_command(600), input=lines, capture_output=True, text=True, cwd=ROOT, timeout=30
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[0]["result"]["supportedVersions"] == ["2026-07-28"]
    assert answers[1]["result"]["protocolVersion"] == "2025-11-25"
    assert [len(answers[number]["result"]["tools"]) for number in (2, 3)] == [500, 100]
    assert answers[4]["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert answers[5]["error"]["code"] == -32601


def test_table_shows_target_and_verdict_of_each_row(tmp_path: Path) -> None:
    rows = [Row("cpu", "ms", 0.3, 0.5, limit=0.7, judged_by_ratio=True), Row("start", "s", 1.6, limit=1.5)]
    lines = table(rows).splitlines()
    assert lines[2].split() == ["cpu", "ms", "0.300", "0.500", "0.60", "≤", "0.7", "×", "SDK", "OK"]
    assert lines[3].split() == ["start", "s", "1.600", "≤", "1.5", "s", "MISS"]
    write(tmp_path / "results" / "latest.json", rows, 1.0)
    written = json.loads((tmp_path / "results" / "latest.json").read_text(encoding="utf-8"))
    assert [row["verdict"] for row in written["rows"]] == ["OK", "MISS"]


def test_prepared_request_declares_the_length_of_its_body_for_every_id() -> None:
    make = prepare(Address("http://127.0.0.1:4242/mcp", "secret"), "tools/call", {"name": "echo"}, "echo")
    for request_id in (FIRST_ID, FIRST_ID + 12_345):
        head, _, body = make(request_id).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
        assert {b"Mcp-Method: tools/call", b"Mcp-Name: echo", b"Authorization: Bearer secret"} <= {*head.split(b"\r\n")}
        assert json.loads(body)["id"] == request_id


def test_generated_tool_modules_are_python_with_the_requested_number_of_tools(tmp_path: Path) -> None:
    write_echo(tmp_path)
    write_many(tmp_path, 250)
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.py")}
    assert sorted(trees) == ["bench.py", "many00.py", "many01.py", "many02.py"]
    tools = [node for tree in trees.values() for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    assert len(tools) == 251
    assert many_schema()["required"] == ["customer"]


def test_generated_code_has_the_requested_lines_in_three_languages(tmp_path: Path) -> None:
    files = write_code(tmp_path, 1_000)
    written = [path for path in tmp_path.rglob("file*.*") if ".git" not in path.parts]
    assert len(written) == files
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in written) >= 1_000
    assert {path.suffix for path in written} == {".py", ".ts", ".go"}
