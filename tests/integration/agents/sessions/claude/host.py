"""A session host that a test kills once it prints that a call runs: `host.py VARIABLES.json FOLDER PROJECT PROMPT`."""

import json
import os
import sys
from pathlib import Path

import anyio

from toolcrib.agents.sessions.claude.runtime import ClaudeRuntime
from toolcrib.agents.sessions.runtime import Brief, Offered
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.testing.processes import descendants
from toolcrib.testing.recording_host import RecordingHost
from toolcrib.testing.runner_rig import ECHO


async def main(environment: Environment, folder: Path, project: str, prompt: str) -> None:
    async def runs(offered: Offered, arguments: JsonObject) -> CallResult:
        os.write(1, f"{json.dumps(list(descendants()))}\n".encode())
        await anyio.sleep_forever()
        return CallResult()

    runner = ClaudeRuntime(environment, folder)
    brief = Brief("s", project, "default", "", (ECHO,), (), model="claude-sonnet-4-5")
    async with runner.open(brief, RecordingHost(runs)) as conversation:
        await conversation.turn(prompt)


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    anyio.run(main, Environment(given), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
