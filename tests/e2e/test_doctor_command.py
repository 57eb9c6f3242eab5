"""`toolcrib doctor` with a running crib, without one, and on a broken machine."""

from pathlib import Path

import pytest

from e2e.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell whose user seems to be signed in to Claude Code."""
    return Shell.at(tmp_path).having(ANTHROPIC_API_KEY="x")


def test_doctor_reports_findings_and_fix_repairs_them(shell: Shell) -> None:
    broken = shell.home / "tools" / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    assert shell.run("mcp", "add", "gone", "--", "no-such-program").returncode == 0
    shell.home.chmod(0o755)
    first = shell.run("doctor")
    assert first.returncode == 1
    assert f"error    modes: Other users can access {shell.home}." in first.stdout
    assert "error    tools: `broken.py` could not be loaded" in first.stdout
    passed = next(line for line in first.stdout.splitlines() if line.startswith("ok  "))
    assert "python" in passed
    assert "servers" not in passed
    assert "doctor --fix" in first.stderr
    broken.unlink()
    assert shell.run("mcp", "remove", "gone").returncode == 0
    shell.home.chmod(0o755)
    second = shell.run("doctor", "--fix", "--json")
    assert second.returncode == 0, second.stdout
    assert '"fixed":' in second.stdout


def test_doctor_asks_the_running_crib(shell: Shell) -> None:
    with shell.serving() as serving:
        report = shell.json("doctor")
    passed = {each["check"]: each for each in report["findings"] if each["severity"] == "ok"}
    assert passed["holder"]["message"] == f"A crib is running at {serving.url}."
    assert {"servers", "tools", "rules", "audit", "tokens", "connections"} <= set(passed)
    assert report["worst"] in ("ok", "note")


def test_doctor_works_without_a_home_and_does_not_create_one(shell: Shell) -> None:
    nowhere = shell.folder / "nowhere"
    assert shell.having(TOOLCRIB_HOME=str(nowhere)).run("doctor").returncode == 0
    assert not nowhere.exists()
    bad = shell.having(TOOLCRIB_PORT="many").run("doctor")
    assert (bad.returncode, "TOOLCRIB_PORT must be a whole number" in bad.stdout) == (1, True)
    assert "the crib cannot start" in bad.stdout
