"""Reads and writes agents in other tools' formats: Claude Code's sub-agents, Agent Skills, AgentZoo's file.

Reading returns everything usable and a problem for the rest; it never raises for a file's content. A permission that
the other format states more narrowly than our patterns can is never widened: it is left out, with a problem.

Must never create anything itself.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import orjson

from toolcrib.agents.zoo.agentzoo_format import agent_shape
from toolcrib.agents.zoo.check import InvalidFields, parse
from toolcrib.agents.zoo.compile import instructions
from toolcrib.agents.zoo.frontmatter import Page, read_page, words_of, write_page
from toolcrib.agents.zoo.input import LONGEST_DESCRIPTION, AgentInput, SkillInput
from toolcrib.model.agents import Agent, BrainEntry, Skill, slug
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object, loads
from toolcrib.model.principals import MODES
from toolcrib.model.problems import Problem
from toolcrib.model.text import count_hidden

Form = Literal["json", "claude", "skills"]
_Input = TypeVar("_Input", AgentInput, SkillInput)
LARGEST = 4 * 1024 * 1024
"""Characters of a file."""
MOST_AGENTS = 1_000
_OWN_TOOLS = "claude_code"
_OF_SERVER = re.compile(r"mcp__([^_\s]+(?:_[^_\s]+)*)(?:__(\S+))?")
_NAME = re.compile(r"[A-Za-z]\w*")
_SUBAGENT = frozenset({"name", "description", "tools", "model", "permissionMode"})
_SKILL = frozenset({"name", "description", "allowed-tools"})
_SAID_ELSEWHERE = frozenset({"license", "compatibility", "metadata", "color", "version"})
_LONGEST_SUMMARY = 1024


@dataclass(frozen=True, slots=True)
class FoundAgent:
    """The content of a file: agents, skills, and the problems found."""

    agents: tuple[AgentInput, ...] = ()
    skills: tuple[SkillInput, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedAgent:
    """Files by path, and problems for what the format cannot express."""

    files: tuple[tuple[str, str], ...]
    problems: tuple[Problem, ...] = field(default=())

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        files = [{"path": path, "text": text} for path, text in self.files]
        return {"files": files, "problems": [problem.to_json() for problem in self.problems]}


def read(file: str, text: str) -> FoundAgent:
    """Parse a file; its name and first characters determine the format."""
    if len(text) > LARGEST:
        return _refusal(file, f"The file has more than {LARGEST:,} characters.")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip()[:1] in ("{", "["):
        return _read_json(file, text)
    page = read_page(text, file)
    if page is None:
        return _refusal(file, "The file is neither JSON nor Markdown with front matter.")
    is_skill = file.rpartition("/")[2].lower() == "skill.md" or "allowed-tools" in page.fields
    return _read_skill(file, page) if is_skill else _read_subagent(file, page)


def write(agent: Agent, entries: Sequence[BrainEntry], form: Form) -> ExportedAgent:
    """Export an agent in one of the formats."""
    if form == "claude":
        return _write_subagent(agent)
    if form == "skills":
        files = tuple((f"{_plain_name(skill.id)}/SKILL.md", _skill_page(skill)) for skill in agent.skills)
        return ExportedAgent(files, tuple(_unsaid(agent.skills)))
    whole = agent.to_json() | {"brainEntries": [entry.to_json() for entry in entries]}
    return ExportedAgent((("agents.json", dumps([whole], option=orjson.OPT_INDENT_2).decode() + "\n"),))


def _read_json(file: str, text: str) -> FoundAgent:
    try:
        value: Json = loads(text)
    except orjson.JSONDecodeError as error:
        return _refusal(file, f"The file is not JSON: {error}.")
    if is_object(value) and "agents" in value:
        value = value["agents"]
    if is_object(value):
        values: Sequence[Json] = [value] if "name" in value else list(value.values())
    elif is_array(value):
        values = value
    else:
        return _refusal(file, "The file contains no agents.")
    problems: list[Problem] = []
    if len(values) > MOST_AGENTS:
        problems.append(_problem(file, f"Only the first {MOST_AGENTS} of {len(values)} agents are imported."))
    agents: list[AgentInput] = []
    for position, each in enumerate(values[:MOST_AGENTS]):
        where = f"Agent {position + 1}"
        shape, notes = agent_shape(each)
        problems += [Problem("agent.note", f"{where}: {note}", None, file) for note in notes]
        agents += _parse_input(AgentInput, shape, where, file, problems)
    return FoundAgent(tuple(agents), problems=(*problems, *_find_hidden(file, text)))


def _read_subagent(file: str, page: Page) -> FoundAgent:
    fields, problems = page.fields, list(page.problems)
    stem = file.rpartition("/")[2].removesuffix(".md")
    name = _string(fields.get("name")) or stem
    shape: JsonObject = {
        "id": slug(name, fallback="agent"),
        "name": name,
        "description": _string(fields.get("description"))[:LONGEST_DESCRIPTION],
        "systemPrompt": page.body,
    }
    if fields.get("tools") is not None:
        shape["toolPermissions"] = _tools(words_of(fields["tools"]), file, problems)
    model = _string(fields.get("model"))
    if model and model != "inherit":
        shape["model"] = model
    mode = fields.get("permissionMode")
    if mode in MODES:
        shape["mode"] = mode
    problems += _left_out(fields, _SUBAGENT, file)
    agents = _parse_input(AgentInput, shape, "The agent", file, problems)
    return FoundAgent(tuple(agents), problems=(*problems, *_find_hidden(file, page.body)))


def _read_skill(file: str, page: Page) -> FoundAgent:
    fields, problems = page.fields, list(page.problems)
    folder = file.rpartition("/")[0].rpartition("/")[2]
    name = _string(fields.get("name")) or folder or "Skill"
    parts = (_string(fields.get("description")).strip(), page.body.strip())
    shape: JsonObject = {
        "id": slug(name, fallback="skill"),
        "name": name,
        "description": "\n\n".join(part for part in parts if part),
        "tools": _tools(words_of(fields.get("allowed-tools")), file, problems),
    }
    problems += _left_out(fields, _SKILL, file)
    skills = _parse_input(SkillInput, shape, "The skill", file, problems)
    return FoundAgent(skills=tuple(skills), problems=(*problems, *_find_hidden(file, page.body)))


def _parse_input(model: type[_Input], shape: Json, where: str, file: str, problems: list[Problem]) -> list[_Input]:
    try:
        return [parse(model, shape)]
    except InvalidFields as error:
        problems.append(_problem(file, f"{where} was not imported: {error.message}."))
        return []


def _tools(names: Iterable[str], file: str, problems: list[Problem]) -> list[str]:
    """Convert another tool's tool names to our patterns."""
    patterns: list[str] = []
    for name in names:
        of_server = _OF_SERVER.fullmatch(name)
        if of_server:
            patterns.append(f"{of_server[1]}/{of_server[2] or '*'}")
        elif _NAME.fullmatch(name):
            patterns.append(f"{_OWN_TOOLS}/{name}")
        elif name == "*":
            patterns.append(name)
        else:
            message = f"The tool {name[:100]!r} was skipped: a grant covers a whole tool, not some of its calls."
            problems.append(Problem("agent.note", message, "Grant the tool and add a rule for its arguments.", file))
    return list(dict.fromkeys(patterns))


def _write_subagent(agent: Agent) -> ExportedAgent:
    fields: JsonObject = {"name": _plain_name(agent.id), "description": _one_line(agent.description) or agent.name}
    problems: list[Problem] = []
    if agent.tool_permissions is not None:
        bundled = (pattern for skill in agent.enabled_skills for pattern in skill.tools)
        names, unsaid = _names_of((*agent.tool_permissions, *bundled))
        fields["tools"] = ", ".join(names)
        problems += unsaid
        if not names:
            message = "The agent may use no tools, but an empty list may give a sub-agent all of them."
            problems.append(Problem("agent.note", message, "Set its tools in the app by hand."))
    optional = {"model": agent.model, "permissionMode": agent.mode}
    fields |= {name: value for name, value in optional.items() if value is not None}
    if agent.include_brain:
        problems.append(Problem("agent.note", "Memory and context references are not part of the file."))
    if agent.enabled_skills:
        problems.append(Problem("agent.note", "The enabled skills are written into the prompt."))
    path = f".claude/agents/{_plain_name(agent.id)}.md"
    return ExportedAgent(((path, write_page(fields, instructions(agent))),), tuple(problems))


def _skill_page(skill: Skill) -> str:
    first, _, rest = skill.description.strip().partition("\n\n")
    summary = _one_line(first)
    fields: JsonObject = {"name": _plain_name(skill.id), "description": summary or skill.name}
    if names := _names_of(skill.tools)[0]:
        fields["allowed-tools"] = ", ".join(names)
    # If the first paragraph was shortened, the body keeps it in full.
    return write_page(fields, rest if summary == first else skill.description)


def _unsaid(skills: Iterable[Skill]) -> Iterable[Problem]:
    for skill in skills:
        yield from _names_of(skill.tools)[1]
        if skill.requires:
            yield Problem("agent.note", f"Skill {skill.id!r} requires other skills; the file does not include that.")


def _names_of(patterns: Iterable[str]) -> tuple[list[str], list[Problem]]:
    """Convert our patterns to another tool's tool names; report those without an equivalent."""
    names: list[str] = []
    problems: list[Problem] = []
    for pattern in dict.fromkeys(patterns):
        server, _, tool = pattern.partition("/")
        if pattern == "*" or (server == _OWN_TOOLS and "*" not in tool):
            names.append(tool or pattern)
        elif tool == "*" and "*" not in server and server != _OWN_TOOLS:
            names.append(f"mcp__{server}")
        elif "*" not in pattern:
            names.append(f"mcp__{server}__{tool}")
        else:
            problems.append(Problem("agent.note", f"{pattern!r} has no name in this format and was skipped."))
    return names, problems


def _left_out(fields: JsonObject, known: frozenset[str], file: str) -> list[Problem]:
    others = sorted(name for name in fields if name not in known | _SAID_ELSEWHERE)
    if not others:
        return []
    return [Problem("agent.note", f"Ignored: {', '.join(name[:50] for name in others[:20])}.", None, file)]


def _find_hidden(file: str, text: str) -> list[Problem]:
    """Report invisible characters: third-party text may hide instructions in them."""
    count = count_hidden(text)
    message = f"The text has {count} invisible characters, which a model still reads."
    return [Problem("agent.note", message, "Check the prompt before you use it.", file)] if count else []


def _string(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_SUMMARY]


def _plain_name(text: str) -> str:
    return slug(text, fallback="agent", longest=64)


def _problem(file: str, message: str) -> Problem:
    return Problem("agent.unreadable", message, None, file)


def _refusal(file: str, message: str) -> FoundAgent:
    return FoundAgent(problems=(_problem(file, message),))
