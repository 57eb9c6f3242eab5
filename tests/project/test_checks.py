"""The project's own checks in `make check`: sizes, changelog and style."""

from pathlib import Path

from scripts import check_changelog, check_sizes, check_style

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.2.0] - 2026-02-01\n\n- Old.\n"


def write_module(root: Path, text: str) -> None:
    (root / "src").mkdir()
    (root / "src" / "module.py").write_text(text, encoding="utf-8")


def test_module_above_the_limit_is_reported_with_its_size(tmp_path: Path) -> None:
    write_module(tmp_path, "value = 1\n" * (check_sizes.MODULE_LINES + 1))
    assert check_sizes.too_large(tmp_path) == {"src/module.py": "601 lines, at most 600"}


def test_long_method_is_reported_inside_its_class(tmp_path: Path) -> None:
    long = "    def long(self):\n" + "        self.x = 1\n" * check_sizes.FUNCTION_LINES
    short = "    def short(self):\n" + "        self.x = 1\n" * (check_sizes.FUNCTION_LINES - 1)
    write_module(tmp_path, f"class Thing:\n{short}{long}")
    assert list(check_sizes.too_large(tmp_path)) == ["src/module.py::Thing.long"]


def test_exception_silences_a_size_and_must_be_needed_and_have_a_reason() -> None:
    found = {"src/a.py": "700 lines", "src/b.py": "700 lines"}
    assert check_sizes.complaints(found, {"src/a.py": "A table.", "src/b.py": "A table."}) == []
    assert check_sizes.complaints(found, {"src/a.py": "A table."}) == ["src/b.py: 700 lines"]
    assert check_sizes.complaints({}, {"src/a.py": "A table."}) == ["src/a.py: an exception that is not needed"]
    assert check_sizes.complaints(found, {"src/a.py": " ", "src/b.py": "x"}) == [
        "src/a.py: an exception without a reason"
    ]


def test_valid_changelog_has_no_complaints() -> None:
    assert check_changelog.complaints(CHANGELOG, "0.2.0") == []
    assert check_changelog.complaints(CHANGELOG, "0.10.0") == []


def test_changelog_that_contradicts_the_version_is_reported() -> None:
    empty = CHANGELOG.replace("- New.", "")
    assert "Unreleased is empty" in check_changelog.complaints(empty, "0.3.0")[0]
    assert "a newer release" in check_changelog.complaints(CHANGELOG, "0.1.0")[0]
    assert "must be `## [Unreleased]`" in check_changelog.complaints("## [0.1.0] - 2026-01-01\n", "0.1.0")[0]
    assert "neither" in check_changelog.complaints(CHANGELOG + "\n## Old things\n", "0.2.0")[0]
    assert "newest first" in check_changelog.complaints(CHANGELOG + "\n## [0.3.0] - 2026-03-01\n", "0.3.0")[0]
    assert "no date" in check_changelog.complaints(CHANGELOG + "\n## [0.1.0]\n", "0.2.0")[0]


def test_prose_with_too_many_marker_words_is_reported_by_place() -> None:
    plain = "Return the answer of the server. " * 100
    assert check_style.complaints({"src": plain, "docs": plain}) == []
    (found,) = check_style.complaints({"src": plain, "docs": f"{plain} Nobody asked."})
    assert found.startswith("docs: somebody, nobody, whoever")
    (few,) = check_style.complaints({"src": "The answer of the server. " * 100})
    assert few.startswith("src: return(s)")


def test_prose_of_a_module_is_its_docstrings_and_comments() -> None:
    text = '"""Module."""\nvalue = "text"  # reason\n"""Attribute."""\n\n\ndef run() -> None:\n    """Run."""\n'
    assert sorted(check_style.prose_of_module(text)) == ["Attribute.", "Module.", "Run.", "reason"]


def test_long_test_name_and_marker_words_in_it_are_reported() -> None:
    text = "def test_denied_call_leaves_one_record() -> None: ...\n\n\ndef helper() -> None: ...\n"
    (name,) = check_style.names_of_tests(text)
    assert check_style.name_complaints(name) == []
    assert check_style.name_complaints("test_nobody_is_told") == [
        'test_nobody_is_told: contains "nobody"',
        'test_nobody_is_told: contains "told"',
    ]
    (long,) = check_style.name_complaints("test_" + "x" * 76)
    assert long.endswith(": 81 characters, at most 80")


def test_prose_of_the_test_trees_is_counted() -> None:
    plain = "Return the answer of the server. " * 100
    (found,) = check_style.complaints({"src": plain, "tests": f"{plain} It says so."})
    assert found.startswith("tests: says, said")
    checked = {str(path.relative_to(check_style.ROOT)) for path in check_style.checked_files()}
    assert {"tests/lab.py", "bench/client.py", "scripts/check_style.py", "examples/claude_loop.py"} <= checked
