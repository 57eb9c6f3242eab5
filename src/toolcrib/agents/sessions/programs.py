"""The coding agents driven over the Agent Client Protocol: their names and how each is started.

Four are built in and found on the PATH. The settings file defines others, and can override the command of these four:

    [runners.mine]
    command = ["node", "/opt/agent/index.js"]
    env = { AGENT_COLOR = "no" }
    variables = ["MY_API_KEY", "AGENT_*"]
    like = "claude-acp"
    mode = "default"

Must never start anything, and never pass a program a variable that is not listed here or in the file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolcrib.base.files.reading import FileText, Unreadable, read_text
from toolcrib.base.processes.start import NETWORK_NAMES
from toolcrib.gate.policy.fields import FieldFault, Members, list_of, one_of, text_of
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.problems import Problem
from toolcrib.servers.syntax.document import SyntaxProblem, line_at
from toolcrib.servers.syntax.toml import parse, statements

Dialect: TypeAlias = Literal["claude", "gemini", "plain"]
"""How an agent expresses what the protocol leaves open."""

TABLE: Final = "runners"
LONGEST: Final = 4_096
MEMBERS: Final = ("command", "env", "variables", "like", "mode")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_EVERYWHERE: Final = (
    "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "COLORTERM", "NO_COLOR", "XDG_*", *NETWORK_NAMES,
)  # fmt: skip
"""Variables passed to every program; a trailing star matches any suffix. The base names are always passed."""
_OF_A_SESSION: Final = re.compile(r"CLAUDE_CODE_(CHILD_SESSION|SESSION_ID|SSE_PORT|EXECPATH|ENTRYPOINT|MESSAGING_\w+)")
"""Variables that a Claude Code session sets for its child processes; a crib started by one does not pass them on."""
_LONGEST_CALL = "100000000"


@dataclass(frozen=True, slots=True)
class Program:
    """An agent's program. `mode` is its own mode in which it asks before acting, `install` how to install it.

    `variables` are those passed on from the crib, where a trailing star matches any suffix; `env` sets further ones.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    variables: tuple[str, ...] = ()
    mode: str | None = None
    dialect: Dialect = "plain"
    install: str = "Install it, or correct its command in `toolcrib.toml`."

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment it is started with."""
        wanted = (*_EVERYWHERE, *self.variables)
        plain = frozenset(wanted)
        families = tuple(name.removesuffix("*") for name in wanted if name.endswith("*"))
        passed = {
            name: value
            for name, value in given.items()
            if (name in plain or name.startswith(families)) and not _OF_A_SESSION.fullmatch(name)
        }
        return {**passed, **self.env}


BUILT_IN: Final = {
    each.name: each
    for each in (
        Program(
            "claude-acp",
            ("claude-agent-acp",),
            {
                "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # a turn ends with its answer
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "MCP_TOOL_TIMEOUT": _LONGEST_CALL,  # an approval may take hours; the gate limits every call
            },
            ("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*", "ENABLE_TOOL_SEARCH", "IS_SANDBOX", "MAX_THINKING_TOKENS"),
            mode="default",
            dialect="claude",
            install="npm install -g @agentclientprotocol/claude-agent-acp",
        ),
        Program(
            "codex",
            ("codex-acp",),
            variables=("OPENAI_*", "CODEX_*"),
            mode="read-only",
            install="npm install -g @agentclientprotocol/codex-acp",
        ),
        Program(
            "gemini",
            ("gemini", "--acp"),
            variables=("GEMINI_*", "GOOGLE_*"),
            mode="default",
            dialect="gemini",
            install="npm install -g @google/gemini-cli",
        ),
        Program(
            "opencode",
            ("opencode", "acp"),
            {"OPENCODE_CONFIG_CONTENT": '{"permission":{"*":"ask"}}', "OPENCODE_DISABLE_AUTOUPDATE": "1"},
            ("OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "OPENROUTER_*", "GEMINI_*"),
            install="npm install -g opencode-ai",
        ),
    )
}
"""The built-in agents."""


@dataclass(frozen=True, slots=True)
class ProgramsRead:
    """The agents of a settings file: the valid ones, and the problems of the others, both by name."""

    programs: Mapping[str, Program] = field(default_factory=dict[str, Program])
    wrong: Mapping[str, Problem] = field(default_factory=dict[str, Problem])


class Programs:
    """The available agents. The file is read on every access, that is when a session is created or started."""

    def __init__(self, settings_file: Path) -> None:
        self._file = settings_file

    def names(self) -> Sequence[str]:
        """Return the names of all agents."""
        return sorted({*BUILT_IN, *self.read().programs})

    def find(self, name: str) -> Program | None:
        """Return the agent of this name, or None. Raises `runner.invalid` if its table is invalid."""
        read = self.read()
        if name in read.programs:
            return read.programs[name]
        if name in read.wrong:
            wrong = read.wrong[name]
            raise ConfigError(wrong.code, f"{wrong.message} ({wrong.file}, line {wrong.line})")
        return BUILT_IN.get(name)

    def read(self) -> ProgramsRead:
        """Parse the file. An unreadable file counts as empty here; the settings report the problem."""
        found: FileText | Unreadable | None = read_text(self._file)
        return read_programs(found.text, str(self._file)) if isinstance(found, FileText) else ProgramsRead()


def read_programs(text: str, file: str) -> ProgramsRead:
    """Parse the tables `[runners.NAME]` of a settings file."""
    try:
        raw: Json = parse(text).value.get(TABLE, {})
    except SyntaxProblem:
        return ProgramsRead()  # the settings already report this problem
    if not is_object(raw):
        return ProgramsRead(wrong={"": _problem(text, file, (TABLE,), f"`{TABLE}` must be tables `[{TABLE}.NAME]`.")})
    programs: dict[str, Program] = {}
    wrong: dict[str, Problem] = {}
    for name, entry in raw.items():
        faults: list[FieldFault] = []
        program = _read(name, entry, faults)
        if program is not None and not faults:
            programs[name] = program
        else:
            message = f"[{TABLE}.{name}] is ignored: {' '.join(fault.message for fault in faults)}"
            wrong[name] = _problem(text, file, (TABLE, name), message)
    return ProgramsRead(programs, wrong)


def _problem(text: str, file: str, path: tuple[str, ...], message: str) -> Problem:
    """Return the problem with the first line that has these keys."""
    starts = (each.start for each in statements(text) if each.path[: len(path)] == path)
    return Problem("runner.invalid", message, file=file, line=line_at(text, next(starts, 0)))


def _read(name: str, raw: Json, faults: list[FieldFault]) -> Program | None:
    if not is_object(raw):
        faults.append(FieldFault("", f"It must be a table, written `[{TABLE}.{name}]`."))
        return None
    if not _NAME.fullmatch(name) or name == "claude":
        faults.append(FieldFault("", "The name is invalid."))
    members = Members(raw, MEMBERS, faults)
    like = members.take("like", one_of(tuple(BUILT_IN)), f"one of {', '.join(BUILT_IN)}")
    known = BUILT_IN.get(like or name)
    command = members.take("command", _words, "a list of strings", needed=known is None)
    env = members.take("env", _env, "a table of strings")
    variables = members.take("variables", list_of(_variable), "a list of names, each optionally ending with `*`")
    mode = members.take("mode", text_of(100), "a text")
    base = known or Program(name, ())
    return replace(
        base,
        name=name,
        command=command or base.command,
        env={**base.env, **(env or {})},
        variables=(*base.variables, *(variables or ())),
        mode=mode or base.mode,
    )


def _words(value: Json) -> tuple[str, ...] | None:
    """Parse a command. It is never split into words: the list is exactly what will run."""
    return list_of(text_of(LONGEST))(value)


def _variable(value: Json) -> str | None:
    return value if isinstance(value, str) and _VARIABLE.fullmatch(value) else None


def _env(value: Json) -> dict[str, str] | None:
    if not is_object(value):
        return None
    given: JsonObject = value
    return (
        dict(given) if all(isinstance(each, str) and _VARIABLE.fullmatch(key) for key, each in given.items()) else None
    )
