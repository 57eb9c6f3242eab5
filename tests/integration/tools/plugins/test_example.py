"""The example plugin, built as a wheel and installed, through the commands of docs/plugins.md."""

import json
from pathlib import Path

from docs.pages import commands, follow, page, reader
from integration.tools.plugins.packages import install_example


def test_the_commands_of_the_page_work_in_their_order_with_the_example_installed(tmp_path: Path) -> None:
    target = install_example(tmp_path)
    person = reader(tmp_path, PYTHONPATH=str(target))
    lines = commands(page("plugins"))
    assert len(lines) >= 6
    with person.serving():
        silent = person.run("plugins", "grant", "words", stdin="")
        assert (silent.returncode, "requires confirmation" in silent.stderr) == (2, True)
        said = follow(person, lines)
    printed = {line.partition("#")[0].strip(): text for line, text in zip(lines, said, strict=True)}
    (shown,) = json.loads(printed["toolcrib plugins list --json"])
    assert (shown["name"], shown["state"], shown["capabilities"]) == ("words", "not_granted", ["filesystem"])
    assert "words is loaded with 2 tools" in printed["toolcrib plugins grant words --yes"]
    (called,) = [text for line, text in printed.items() if line.startswith("toolcrib tools call")]
    assert '"words":3' in called
