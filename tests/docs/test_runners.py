"""docs/runners.md describes the runtimes of the program."""

import re
from pathlib import Path

from toolcrib.agents.sessions.programs import BUILT_IN, MEMBERS, read_programs
from toolcrib.model.errors import CODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "runners.md").read_text(encoding="utf-8")


def test_table_of_agents_matches_the_code() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `([^`]+)` \| `([^`]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    written = {name: (command, install, mode.strip("`")) for name, command, install, mode in rows}
    assert written == {
        name: (" ".join(program.command), program.install, program.mode or "asks for everything")
        for name, program in BUILT_IN.items()
    }


def test_example_runtime_is_valid_and_has_every_member() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    read = read_programs(example, "toolcrib.toml")
    assert read.wrong == {}
    assert read.programs["mine"].mode == "careful"
    assert all(f"{member} = " in example for member in MEMBERS)


def test_error_codes_of_the_page_exist() -> None:
    named = set(re.findall(r"`(runner\.\w+)`", PAGE))
    assert named
    assert named <= CODES.keys()
