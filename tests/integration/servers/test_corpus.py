"""Every file of the open corpus is read without a crash, and its servers equal the labels.

The corpus is not part of the project: `TOOLCRIB_CORPUS` names its folder; without it these tests are skipped.
"""

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib.base.files.reading import FileText, read_text
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import ConfigFile, FileReading, ReadEntry, read_content, read_place

CORPUS = os.environ.get("TOOLCRIB_CORPUS")
CONFIGS = Path(CORPUS) / "configs" if CORPUS else None
pytestmark = pytest.mark.skipif(CONFIGS is None, reason="TOOLCRIB_CORPUS is not set")

FORMATS = {
    "amazonq": "amazon-q",
    "claude-managed": "claude-code",
    "mcp-json": "claude-code",
    "mcp-json-plain": "mcp-json",
    "omp": "oh-my-pi",
    "registry-server": "registry",
    "visualstudio": "visual-studio",
}
"""Labels of the corpus whose format has another name in Toolcrib."""

DEVIATIONS = {
    # opencode reads the newer form `mcp.servers`; the label takes "servers" for a server.
    "opencode/015",
    # An unknown type is invalid; the label considers only the command.
    "mcp-json-plain/017",
    # With command, URL and type, the type decides; the label is a conflict.
    "visualstudio/003",
    "visualstudio/004",
}


def _rows() -> list[dict[str, Any]]:
    if CONFIGS is None:
        return []
    return [json.loads(line) for line in (CONFIGS / "index.jsonl").read_text("utf-8").splitlines()]


def _format(row: dict[str, Any]) -> str:
    label = str(row["format"])
    if label == "kilo":
        return "kilo" if row["path"].endswith(("kilo.json", "kilo.jsonc")) else "kilo-legacy"
    return FORMATS.get(label, label)


def _read(row: dict[str, Any]) -> FileReading:
    assert CONFIGS is not None
    reading = read_place(ConfigFile(_format(row), "project", CONFIGS / row["file"]))
    assert reading is not None
    return reading


def _expected(row: dict[str, Any]) -> dict[str, Any] | None:
    assert CONFIGS is not None
    path = CONFIGS / "expected" / f"{row['id']}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Labels are raw; numbers and booleans are text in an environment."""
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
        if value is not None
    }


def _check_entry(entry: ReadEntry, label: dict[str, Any]) -> None:
    if "invalid" in label or "conflict" in label:
        assert entry.spec is None
        assert entry.problems
        return
    spec = entry.spec
    assert spec is not None, entry.problems
    assert spec.enabled == label["enabled"]
    if label["transport"] == "stdio":
        assert (spec.type, spec.command, list(spec.args)) == ("stdio", label["command"], label.get("args", []))
        assert spec.env == _texts(label.get("env") or {})
        assert spec.cwd == label.get("cwd")
    else:
        assert spec.type in (("http", "sse") if label["transport"] == "remote" else (label["transport"],))
        assert spec.url == label["url"]
        assert spec.headers == _texts(label.get("headers") or {})


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
def test_real_file_is_read_as_its_label(row: dict[str, Any]) -> None:
    """Compare names, endpoints, environment, headers and switches with the label."""
    reading = _read(row)
    expected = _expected(row)
    if expected is None or row["id"] in DEVIATIONS:
        return
    if expected["parse"] == "error":
        assert reading.broken
        assert reading.problems[0].code == "config.syntax"
        return
    assert not reading.broken, reading.problems
    labels = cast("dict[str, dict[str, Any]]", expected.get("servers") or {})
    entries = {
        entry.name.rpartition(":")[2] if row["format"] == "claude-plugin" else entry.name: entry
        for entry in reading.entries
    }
    servers = {name: label for name, label in labels.items() if "kind" not in label}
    assert {name for name, entry in entries.items() if entry.spec} == {
        name for name, label in servers.items() if "transport" in label
    } or "servers" not in expected
    for name, label in servers.items():
        _check_entry(entries[name], label)
    described = " ".join(problem.message for problem in reading.problems)
    for name, label in labels.items():
        assert "kind" not in label or f'"{name}"' in described


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
def test_every_server_of_a_real_file_is_a_server_or_a_problem_with_a_line(row: dict[str, Any]) -> None:
    """The corpus never counts more servers than are reported."""
    reading = _read(row)
    counted = row["servers"] or 0
    built_in = [problem for problem in reading.problems if problem.code == "server.built_in"]
    assert len(reading.entries) + len(built_in) >= counted or reading.problems
    for entry in reading.entries:
        assert entry.source.line is not None
        assert entry.spec is not None or entry.problems


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
def test_truncated_real_file_is_read_without_a_crash(row: dict[str, Any]) -> None:
    """An editor may be in the middle of writing."""
    assert CONFIGS is not None
    path = CONFIGS / row["file"]
    content = read_text(path)
    assert isinstance(content, FileText)
    for step in range(1, 12):
        cut = FileText(content.text[: len(content.text) * step // 12], content.bom, "")
        read_content(ConfigFile(_format(row), "project", path), cut, ReadingContext(path))


def test_valid_texts_of_the_json_parsing_suite_are_accepted() -> None:
    """Invalid texts may be a value or a problem, but reading them never crashes."""
    assert CORPUS is not None
    folder = Path(CORPUS) / "json-parsing" / "test_parsing"
    for path in sorted(folder.iterdir()):
        reading = read_place(ConfigFile("mcp-json", "project", path))
        assert reading is not None
        if path.name.startswith("y_"):
            assert not reading.broken, path.name
