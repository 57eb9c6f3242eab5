"""The enabled skills of the zoo's agents as skills over MCP: `skill://AGENT/NAME/SKILL.md`, one file each."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.agents.zoo.frontmatter import write_page
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.builtin.agent_zoo.tools import SERVER
from toolcrib.model.agents import Skill, slug
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.skills import SKILL_FILE, SKILL_SCHEME, sha256_digest
from toolcrib.model.tools import ContentItem

_LONGEST_DESCRIPTION = 1_024
_LONGEST_NAME = 56
"""Leaves room for a number, where two skills of an agent have the same name."""


@dataclass(frozen=True, slots=True)
class _SkillPage:
    item: ContentItem
    text: str


class ZooSkills:
    """The skills of all agents, rendered once per version of an agent."""

    def __init__(self, zoo: Zoo) -> None:
        self._zoo = zoo
        self._rendered: dict[str, tuple[int, dict[str, _SkillPage]]] = {}

    async def all(self) -> Sequence[ContentItem]:
        """Return the skills of all agents."""
        known = self._zoo.known
        if len(self._rendered) > 2 * len(known):  # evict deleted agents
            self._rendered.clear()
        pages = [await self._pages(agent.id, agent.version) for agent in known]
        return [page.item for rendered in pages for page in rendered.values()]

    async def read(self, uri: str) -> str | None:
        """Return the text of a `SKILL.md`, or None if there is no such skill."""
        agent_id = uri.removeprefix(SKILL_SCHEME).partition("/")[0]
        version = next((agent.version for agent in self._zoo.known if agent.id == agent_id), None)
        page = (await self._pages(agent_id, version)).get(uri) if version is not None else None
        return page.text if page is not None else None

    async def _pages(self, agent_id: str, version: int) -> dict[str, _SkillPage]:
        kept = self._rendered.get(agent_id)
        if kept is None or kept[0] != version:
            try:
                skills = (await self._zoo.get(agent_id)).agent.skills
            except NotFound:  # deleted meanwhile
                return {}
            kept = self._rendered[agent_id] = version, _render(agent_id, skills)
        return kept[1]


def _render(agent_id: str, skills: Sequence[Skill]) -> dict[str, _SkillPage]:
    pages: dict[str, _SkillPage] = {}
    for number, skill in enumerate(skills, 1):
        if not skill.enabled:
            continue
        name = slug(skill.name, fallback="skill", longest=_LONGEST_NAME)
        if _uri(agent_id, name) in pages:
            name = f"{name}-{number}"
        description = " ".join(skill.description.split())[:_LONGEST_DESCRIPTION] or skill.name
        fields: JsonObject = {"name": name, "description": description}
        text = write_page(fields, f"# {skill.name}\n\n{skill.description.strip()}")
        raw, uri = text.encode(), _uri(agent_id, name)
        file: JsonObject = {"uri": uri, "digest": sha256_digest(raw), "size": len(raw)}
        entry: JsonObject = {"uri": uri, "frontmatter": fields, "resources": [file]}
        pages[uri] = _SkillPage(ContentItem(SERVER, uri, entry), text)
    return pages


def _uri(agent_id: str, name: str) -> str:
    return f"{SKILL_SCHEME}{agent_id}/{name}{SKILL_FILE}"
