"""The rig of a conformance suite: a runtime, and how to script its model."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import anyio

from toolcrib.agents.sessions.runtime import Brief, Conversation, Offered, Runtime
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sessions import TurnEnd
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.testing.recording_host import RecordingHost

SCHEMA: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO = Offered("lab", "echo", Tool(ToolRef("lab", "echo"), "Say something again.", SCHEMA))
OTHER = Offered("shed", "other", Tool(ToolRef("shed", "other"), "Do something else.", SCHEMA))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
"""A one-pixel image."""


def claude_name(offered: Offered) -> str:
    """Return the name under which a Claude model calls a tool."""
    return f"mcp__{offered.server}__{offered.name}"


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool of the runtime itself, harmless with these arguments and `others`; `has_run` checks whether it ran."""

    name: str
    arguments: JsonObject
    others: JsonObject
    has_run: Callable[[JsonObject], bool]


@dataclass(frozen=True, slots=True)
class RunnerRig:
    """A runtime, and how to script its model: `script(name, steps)`; prompts select the script by its tag.

    `name_of` returns the name under which the model calls a tool. `own_tool` is None if the runtime has no tools,
    `question` (a tool and its arguments: one question `Which?` with a choice `A`) if it cannot ask, `model` (not its
    default) if it has only one. `gives_reasons` is false if the model is not given the reason of a denial,
    `takes_changes` if a tool cannot run with changed arguments. `timeout` is the timeout of each conversation in
    seconds.
    """

    runner: Runtime
    script: Callable[[str, list[JsonObject]], None]
    cwd: str
    name_of: Callable[[Offered], str] = claude_name
    own_tool: OwnTool | None = None
    question: tuple[str, JsonObject] | None = None
    model: str | None = None
    resumes: bool = True
    counts_turns: bool = True
    gives_reasons: bool = True
    takes_changes: bool = True
    timeout: float = 30.0

    def use(self, offered: Offered, **arguments: Json) -> JsonObject:
        """Return a script block that calls a tool."""
        return {"tool": self.name_of(offered), "input": arguments}

    @asynccontextmanager
    async def open(self, host: RecordingHost, **more: Any) -> AsyncGenerator[Conversation]:
        """Open a conversation with this `SessionHost`; `more` overrides fields of the `Brief`."""
        own = (self.own_tool.name,) if self.own_tool is not None else ()
        asks = (self.question[0],) if self.question is not None else ()
        brief = Brief(
            session=str(uuid4()),
            cwd=self.cwd,
            mode="default",
            prompt="",
            tools=(ECHO, OTHER),
            own_tools=(*own, *asks),
            model=self.model,
        )
        with anyio.fail_after(self.timeout):
            async with self.runner.open(replace(brief, **more), host) as conversation:
                yield conversation

    async def answer(self, host: RecordingHost, *steps: JsonObject, **more: Any) -> TurnEnd:
        """Run one turn of a new conversation in which the model takes these steps."""
        self.script("s", list(steps))
        async with self.open(host, **more) as conversation:
            return await conversation.turn(prompt("s"))


def prompt(script: str) -> str:
    """Return a prompt that selects this script."""
    return f"Go on. [[script:{script}]]"


def say(text: str, **pace: Json) -> JsonObject:
    """Return a step with a text."""
    return {"blocks": [{"text": text}], **pace}


def do(*blocks: JsonObject) -> JsonObject:
    """Return a step with these blocks."""
    return {"blocks": list(blocks)}


HEARD = say("Heard: {{last_tool_result}}")
"""A step in which the model repeats the last tool result."""
