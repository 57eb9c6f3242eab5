"""A crib in which every name, description and message is an injection attempt."""

import unicodedata
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hostile_strings import WORST
from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import CallContext, RunCall
from toolcrib.model.tools import CallResult, ServerKind, Tool, ToolRef
from toolcrib.testing.played import PlayedRunner


@dataclass(frozen=True)
class HostileSource:
    """A source whose tools have hostile names, titles and descriptions."""

    strings: tuple[str, ...]
    name = "stranger"
    kind: ServerKind = "plugin"

    @property
    def all(self) -> str:
        """All strings, joined."""
        return "\n\n".join(self.strings)

    @property
    def written(self) -> str:
        """All strings, for fields that accept no control characters."""
        return "".join(each for each in self.all if each == "\n" or unicodedata.category(each) != "Cc")

    def tools(self) -> Sequence[Tool]:
        """Return one tool for each string, and one that can be called."""
        names = [*self.strings, "say"]
        return [Tool(ToolRef(self.name, each), each, self._schema(each), title=each) for each in names]

    def problems(self) -> Sequence[Problem]:
        """Return problems with hostile messages."""
        return [Problem("tool.broken", each) for each in WORST]

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Prepare a call that returns every string."""

        async def run(context: CallContext) -> CallResult:
            return CallResult.text(self.all)

        return run

    def scripts(self) -> dict[str, Json]:
        """Return the scripts of its agent: text, a call and questions."""
        questions: list[Json] = [
            {"question": each, "header": each, "options": [{"label": each, "description": each}]} for each in WORST
        ]
        says: list[Json] = [{"thinking": self.all}, {"text": self.all}]
        return {
            "all": [
                {"blocks": [*says, {"tool": "mcp__stranger__say", "input": {"text": self.all}}]},
                {"blocks": [{"tool": "AskUserQuestion", "input": {"questions": questions}}]},
            ]
        }

    def _schema(self, text: str) -> JsonObject:
        described = {"type": "string", "title": text, "description": text, "default": text, "enum": [text, self.all]}
        return {"type": "object", "properties": {text: described, "text": {"type": "string"}}}


@asynccontextmanager
async def hostile_crib(user: Path, strings: tuple[str, ...]) -> AsyncGenerator[ConsoleClient]:
    """Run a crib with the strings in every field that others can fill."""
    source = HostileSource(strings)
    (user / ".cursor").mkdir()
    servers: dict[str, Any] = {each: {"command": each, "args": [each], "disabled": True} for each in strings}
    (user / ".cursor" / "mcp.json").write_bytes(orjson.dumps({"mcpServers": servers}))
    async with open_console(user / "home", user) as console:
        crib = console.crib
        crib.catalog.add(source)
        crib.runners.add(PlayedRunner(source.scripts()))
        await console.send("/agents", {"name": "stranger", "template": "reviewer"})
        for each in WORST:
            await console.send("/agents", {"name": each, "template": "reviewer"})
            skill = {"name": each, "description": each, "tools": "", "requires": ""}
            await console.send("/agents/stranger/skills/-/new", skill)
            await crib.permissions.add({"effect": "ask", "pattern": "stranger/say", "reason": each}, by=each)
            schedule = {"agent": "reviewer", "way": "cron", "cron": "0 9 * * 1-5", "name": each}
            await console.send("/schedules", schedule | {"prompt": source.written})
            await crib.sessions.create(NewSession("web", str(user), title=each, runner="played"))
        sheet = await console.page("/agents/stranger")
        was = sheet.one("input", name="was").attributes["value"]
        await console.send("/agents/stranger", {"was": was, "name": "stranger", "systemPrompt": source.written})
        yield console
