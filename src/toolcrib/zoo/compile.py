"""The prompt of an agent, put together from its parts; pure.

Parts are trimmed and stand one blank line apart: who the agent is, its system prompt, its enabled skills in their
order, then what it opted in to (memory, context), then what bundles add. Token counts are estimates: some four bytes of
UTF-8 make a token, whatever the model.

Above: `zoo`, sessions. Below: `model`. It must never leave out anything without a warning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolcrib.model.agents import Agent, BrainEntry, Skill
from toolcrib.model.json import JsonObject

MEMORY_TOKENS = 4_000
"""What memory and context may take of a prompt, by estimate."""
EMPTY_PROMPT = "systemPrompt is empty"
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Tokens:
    """Estimates of what an agent's prompt costs, as a whole and by part."""

    prompt: int
    system_prompt: int
    skills: tuple[tuple[str, int], ...]
    memory: int
    context: int

    def to_json(self) -> JsonObject:
        """The public shape; it says that these are estimates."""
        return {
            "estimate": True,
            "prompt": self.prompt,
            "systemPrompt": self.system_prompt,
            "skills": [{"id": skill, "tokens": tokens} for skill, tokens in self.skills],
            "memory": self.memory,
            "context": self.context,
            "memoryBudget": MEMORY_TOKENS,
        }


@dataclass(frozen=True, slots=True)
class Compiled:
    """A prompt, what somebody should know about it, and what it costs."""

    prompt: str
    warnings: tuple[str, ...]
    tokens: Tokens


def compile_prompt(agent: Agent, pinned: Sequence[BrainEntry] = (), additions: Sequence[str] = ()) -> Compiled:
    """The whole prompt. `pinned` are the agent's pinned entries, `additions` what bundles add to the prompt."""
    system = agent.system_prompt.strip()
    warnings = [] if system else [EMPTY_PROMPT]
    refs = agent.context_refs if agent.include_brain else ()
    entries = sorted(pinned, key=lambda entry: entry.timestamp, reverse=True) if agent.include_brain else ()
    context = _fitting((f"- {ref.strip()}" for ref in refs), MEMORY_TOKENS)
    memory = _fitting(map(_remembered, entries), MEMORY_TOKENS - sum(map(estimate, context)))
    if left := len(refs) + len(entries) - len(context) - len(memory):
        warnings.append(f"{left} of memory and context left out: they may take about {MEMORY_TOKENS} tokens")
    parts = [
        f"You are now {agent.name.strip()}. Use agentId={agent.id} for all agent_zoo tool usage.",
        *with_skills(system, agent.enabled_skills),
        _section("## Memory", memory),
        _section("## Context", context),
        *(addition.strip() for addition in additions),
    ]
    prompt = _joined(parts)
    tokens = Tokens(
        prompt=estimate(prompt),
        system_prompt=estimate(system),
        skills=tuple((skill.id, estimate(_skill(skill))) for skill in agent.skills),
        memory=sum(map(estimate, memory)),
        context=sum(map(estimate, context)),
    )
    return Compiled(prompt, tuple(warnings), tokens)


def with_skills(system: str, skills: Sequence[Skill]) -> list[str]:
    """The system prompt and the section of the skills; the rule stands only between two parts."""
    if not skills:
        return [system]
    return [system, *(["---"] if system else []), "## Active Skills", *map(_skill, skills)]


def instructions(agent: Agent) -> str:
    """What the agent is told without being named: its system prompt and its enabled skills."""
    return _joined(with_skills(agent.system_prompt.strip(), agent.enabled_skills))


def structured(agent: Agent) -> JsonObject:
    """The parts of the prompt, apart."""
    skills = [{"id": each.id, "name": each.name, "description": each.description} for each in agent.enabled_skills]
    return {"agentId": agent.id, "agentName": agent.name, "systemPrompt": agent.system_prompt, "skills": skills}


def grants(agent: Agent) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """What the agent may use: its own permissions (None: the default set), and the tools of its enabled skills."""
    bundled = dict.fromkeys(pattern for skill in agent.enabled_skills for pattern in skill.tools)
    return agent.tool_permissions, tuple(bundled)


def estimate(text: str) -> int:
    """About how many tokens a text takes."""
    return -(-len(text.encode(errors="replace")) // _BYTES_PER_TOKEN)


def _skill(skill: Skill) -> str:
    return f"### {skill.name.strip()}\n{skill.description.strip()}".strip()


def _remembered(entry: BrainEntry) -> str:
    # Further lines stand in, so that no entry can pass for a section of its own.
    return f"- [{entry.type}] {entry.content.strip()}".replace("\n", "\n  ")


def _fitting(lines: Iterable[str], budget: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if (cost := estimate(line)) <= budget:
            kept.append(line)
            budget -= cost
    return kept


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n\n".join([title, "\n".join(lines)]) if lines else ""


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)
