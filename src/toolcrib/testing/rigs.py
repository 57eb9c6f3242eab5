"""What a runner brings to the suite of runners: itself, and how to make its model say something.

Above: `runners`, and tests of one's own runner. Below: the port in `sessions.runner`, `desks`.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import anyio

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sessions import TurnEnd
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.sessions.runner import Brief, Conversation, Offered, Runner
from toolcrib.testing.desks import RecordingDesk

SCHEMA: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO = Offered("lab", "echo", Tool(ToolRef("lab", "echo"), "Say something again.", SCHEMA))
OTHER = Offered("shed", "other", Tool(ToolRef("shed", "other"), "Do something else.", SCHEMA))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
"""A picture of one point."""


def claude_name(offered: Offered) -> str:
    """The name by which a Claude model calls a tool."""
    return f"mcp__{offered.server}__{offered.name}"


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool of the runtime itself, harmless with these arguments and with `others`; `has_run` says whether it did."""

    name: str
    arguments: JsonObject
    others: JsonObject
    has_run: Callable[[JsonObject], bool]


@dataclass(frozen=True, slots=True)
class RunnerRig:
    """A runner, and how to make its model say something: `script(name, steps)`; prompts name the script by its tag.

    `name_of` is how the model calls a tool. `own_tool` is missing where the runtime has none, `question` (a tool and
    its arguments: one question `Which?` with a choice `A`) where it cannot ask, `model` (one that it would not choose
    by itself) where it has one only. `gives_reasons` is false where a refused tool of the runtime's own cannot tell its
    model why, `takes_changes` where it cannot be run with other arguments. `patience` bounds each conversation, in
    seconds.
    """

    runner: Runner
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
    patience: float = 30.0

    def use(self, offered: Offered, **arguments: Json) -> JsonObject:
        """A block of a script that calls a tool."""
        return {"tool": self.name_of(offered), "input": arguments}

    @asynccontextmanager
    async def open(self, desk: RecordingDesk, **more: Any) -> AsyncGenerator[Conversation]:
        """A conversation at this desk, which begins with `more` in place of what is usual."""
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
        with anyio.fail_after(self.patience):
            async with self.runner.open(replace(brief, **more), desk) as conversation:
                yield conversation

    async def answer(self, desk: RecordingDesk, *steps: JsonObject, **more: Any) -> TurnEnd:
        """One turn of a conversation of its own, in which the model takes these steps."""
        self.script("s", list(steps))
        async with self.open(desk, **more) as conversation:
            return await conversation.turn(prompt("s"))


def prompt(script: str) -> str:
    """A prompt that is answered by this script."""
    return f"Go on. [[script:{script}]]"


def say(text: str, **pace: Json) -> JsonObject:
    """A step that says something."""
    return {"blocks": [{"text": text}], **pace}


def do(*blocks: JsonObject) -> JsonObject:
    """A step of these blocks."""
    return {"blocks": list(blocks)}


HEARD = say("Heard: {{last_tool_result}}")
"""A step by which the model repeats what the last tool gave it."""
