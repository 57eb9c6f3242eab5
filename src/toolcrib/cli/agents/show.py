"""Formats agents and their history as text and tables."""

from typing import TYPE_CHECKING

from toolcrib.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.model.json import Json, JsonObject


def show_agents(agents: "Sequence[JsonObject]") -> None:
    """Print the list of agents."""
    if agents:
        output.table(
            ("id", "name", "description"), [(each["id"], each["name"], each["description"]) for each in agents]
        )
    else:
        output.note("No agents found. Create one with `toolcrib agents create`.")


def _listing(agent: "JsonObject") -> str | None:
    tokens = agent.get("toolTokens")
    budget = f"at most {tokens:,} tokens of tools" if tokens is not None else None
    return ", ".join(each for each in (agent.get("listing"), budget) if each) or None


def show_agent(agent: "JsonObject") -> None:
    """Print one agent in full."""
    tokens = agent["tokens"]
    permissions = agent["toolPermissions"]
    allowed = "the default set" if permissions is None else ", ".join(permissions) or "none"
    facts = [
        ("agent", f"{agent['id']}, version {agent['version']}"),
        ("name", agent["name"]),
        ("for", agent["description"]),
        ("model", agent.get("model")),
        ("mode", agent.get("mode")),
        ("lists", _listing(agent)),
        ("tools", allowed),
        ("prompt", f"about {tokens['prompt']} tokens (estimate)"),
        ("memory", _memory(agent)),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<8} {output.one_line(value, 1000)}")
    if agent["systemPrompt"].strip():
        output.line(f"\n{agent['systemPrompt'].strip()}")
    if agent["skills"]:
        costs = {each["id"]: each["tokens"] for each in tokens["skills"]}
        names = {each["id"]: each["name"] for each in agent["skillCategories"]}
        output.line()
        output.table(
            ("skill", "name", "on", "category", "tokens", "tools"),
            [_skill(each, names, costs[each["id"]]) for each in agent["skills"]],
        )


def show_history(found: "Json") -> None:
    """Print all versions, or what one of them changed."""
    match found:
        case {"diff": diff, "version": version, "kind": kind, "at": at, "author": author}:
            output.line(f"version {version}, {kind} {at} by {author}\n")
            output.line(diff or "No changes.")
        case _:
            rows = [(str(each["version"]), each["kind"], output.when(each["at"]), each["author"]) for each in found]
            output.table(("version", "what", "when", "who"), rows)


def _skill(skill: "JsonObject", categories: "dict[str, str]", tokens: int) -> tuple[str, ...]:
    tools = ", ".join(skill.get("tools", ()))
    on = "yes" if skill["enabled"] else "no"
    return skill["id"], skill["name"], on, categories[skill["categoryId"]], str(tokens), tools


def _memory(agent: "JsonObject") -> str:
    entries = agent["brainEntries"]
    pinned = sum(1 for each in entries if each["pinned"])
    words = f"{len(entries)} newest entries, {pinned} pinned" if entries else "empty"
    return f"{words}; {'part' if agent['includeBrain'] else 'not part'} of the prompt"
