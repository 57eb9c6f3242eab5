"""Any content of a configuration file yields entries or one located problem, never an exception."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.agents.zoo.frontmatter import read_page
from toolcrib.base.files.reading import FileText
from toolcrib.model.servers import Discovery
from toolcrib.servers.discover import merge
from toolcrib.servers.paste import recognise
from toolcrib.servers.readers.apps import FORMATS
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import PARSERS, ConfigFile, FileReading, family_of, read_content
from toolcrib.servers.syntax.document import Document, SyntaxProblem, total
from toolcrib.servers.trust import trust_question

ENDINGS = {"json": "json", "toml": "toml", "yaml": "yaml", "script": "rc"}
ODD = [
    "%YAML 1.3\n---\na: 1\n",
    "%YAML 9.9\n---\n",
    "%YAML 1.2\n%YAML 1.2\n---\n",
    "%TAG ! tag:x,2000:\n---\na: !x 1\n",
    "%TAG !e! !\n%TAG !e! !\n---\n",
    "%UNKNOWN x\n---\na: 1\n",
    "%",
    "a: &a [*a]\n",
    "a: &a {b: *a}\n",
    "a: *nothing\n",
    "a: !!python/object/apply:os.system [id]\n",
    'a: "\\U00110000"\n',
    "a: &x [1,1]\n" + "".join(f"b{n}: &x{n} [{', '.join(['*x' + (str(n - 1) if n else '')] * 9)}]\n" for n in range(9)),
    "<<: [1, {a: 1}]\n",
    "? {a: 1}\n: 2\n",
    "--- 1\n--- 2\n",
    "[" * 5000,
    "{" * 5000,
    '{"a":' * 5000,
    "- " * 5000,
    "a = " + "9" * 5000,
    '{"a": ' + "9" * 5000 + "}",
    '{"a": 1e999}',
    '{"a": NaN}',
    '{"\\ud800": "\\udfff"}',
    "\x00",
    "\ufeff\ufeff{}",
    "a = 2024-99-99T99:99:99Z",
    "[a]\n[a]\n",
    "[[a]]\n[a.b]\n[[a.b]]\n",
    "[a]\nb.c = 1\nb = 2\n",
    "\u2028: \u0085",
    "\t- a\n",
]


def read(place: ConfigFile, text: str) -> FileReading:
    return read_content(place, FileText(text, False, ""), ReadingContext(place.file, (Path("/r"),)))


def place_of(form: str, scope: Any = "user") -> ConfigFile:
    project = Path("/r") if scope == "project" else None
    return ConfigFile(form, scope, Path(f"/x/file.{ENDINGS[FORMATS[form].family]}"), 0, project, project)


def render_all(found: Discovery) -> None:
    """Render everything that is shown of a list."""
    for server in found.servers:
        json.dumps(server.to_json())
        if server.spec is not None:
            json.dumps(trust_question(server.spec, {"HOME": "/h"}).to_json())


def check(form: str, text: str) -> None:
    for scope in ("user", "project"):
        place = place_of(form, scope)
        reading = read(place, text)
        assert all(problem.file == str(place.file) for problem in reading.problems)
        if reading.broken:
            assert len(reading.problems) == 1
        render_all(merge([reading], {"HOME": "/h"}, lambda _: False))


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_malformed_text_yields_at_most_one_located_problem(form: str) -> None:
    for text in ODD:
        check(form, text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(
        ["stdio", "http", "${A}", "{file:/x}", "!id", "https://[", "http://a:b@c:99999/", "\ud800"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
FIELDS = st.dictionaries(
    st.sampled_from(
        ["command", "args", "env", "url", "headers", "type", "cwd", "auth", "tools", "enabled", "disabled", "timeout",
         "name", "cmd", "uri", "httpUrl", "serverUrl", "envFile", "environment", "oauth", "transport", "settings"]
    ),
    VALUES,
    max_size=5,
)  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FORMATS)), st.dictionaries(st.text(max_size=8), FIELDS | VALUES, max_size=3))
def test_any_value_in_any_field_of_any_format_is_judged(form: str, entries: dict[str, Any]) -> None:
    dialect = FORMATS[form]
    if dialect.family == "script":
        return
    for root in (*dialect.roots, ()):
        whole: Any = entries
        for key in reversed(root):
            whole = {key: whole}
        place = ConfigFile(form, "user", Path("/x/file.json"))
        try:
            text = json.dumps(whole)
        except ValueError:
            return
        render_all(merge([read(place, text)], {"HOME": "/h"}, lambda _: False))


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(FORMATS)),
    st.text(max_size=60) | st.text(st.sampled_from("%YAMLTG 1.32\n-:&*!?|>[]{}\"'#,a0=<"), max_size=60),
)
def test_any_text_is_read_or_a_problem(form: str, text: str) -> None:
    check(form, text)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ODD) | st.text(max_size=60))
def test_any_pasted_or_imported_text_is_recognised_or_a_problem(text: str) -> None:
    recognise(text)
    read_page(f"---\n{text}\n---\nbody", "agent.md")


@pytest.mark.parametrize(
    "error", [KeyError("x"), AssertionError(), MemoryError(), RecursionError(), OverflowError("y")]
)
def test_any_exception_of_a_parser_is_a_syntax_problem(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str) -> Document:
        raise error

    guarded: Callable[[str], Document] = total(parse)
    with pytest.raises(SyntaxProblem):
        guarded("x")
    for form in ("toolcrib", "codex", "goose"):
        place = place_of(form)
        monkeypatch.setitem(PARSERS, family_of(place), guarded)  # pyright: ignore[reportArgumentType] a dict underneath
        assert [problem.code for problem in read(place, "{}").problems] == ["config.syntax"]


@pytest.mark.parametrize("form", ["toolcrib", "codex", "goose"])
def test_failing_reader_is_a_problem_of_its_file(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise KeyError("unexpected")

    place = place_of(form)
    monkeypatch.setattr("toolcrib.servers.readers.read._read_document", fail)
    reading = read(place, {"json": "{}", "toml": "a = 1", "yaml": "a: 1"}[family_of(place)])
    assert (reading.broken, [problem.code for problem in reading.problems]) == (True, ["config.unreadable"])
