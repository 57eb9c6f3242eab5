"""The example plugin, built as a wheel and installed, with the commands of docs/plugins.md."""

import json
from pathlib import Path

from docs.pages import commands, follow, page, reader
from integration.tools.plugins.packages import install_example


def test_commands_of_the_plugins_page_work_in_order_with_the_example(tmp_path: Path) -> None:
    target = install_example(tmp_path)
    shell = reader(tmp_path, PYTHONPATH=str(target))
    lines = commands(page("plugins"))
    assert len(lines) >= 6
    with shell.serving():
        unconfirmed = shell.run("plugins", "grant", "words", stdin="")
        assert (unconfirmed.returncode, "requires confirmation" in unconfirmed.stderr) == (2, True)
        outputs = follow(shell, lines)
    printed = {line.partition("#")[0].strip(): text for line, text in zip(lines, outputs, strict=True)}
    (shown,) = json.loads(printed["toolcrib plugins list --json"])
    assert (shown["name"], shown["state"], shown["capabilities"]) == ("words", "not_granted", ["filesystem"])
    assert "words is loaded with 2 tools" in printed["toolcrib plugins grant words --yes"]
    (called,) = [text for line, text in printed.items() if line.startswith("toolcrib tools call")]
    assert '"words":3' in called
