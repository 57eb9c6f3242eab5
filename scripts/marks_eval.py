"""Measures data-flow rules with the injection tasks of AgentDojo (`make marks-eval`).

A scripted agent makes the calls of every user task, and obeys every injection that it reads, for all pairs of user and
injection tasks. Its calls pass through the gate of a real crib to a stdio server with the tools of the suite. A person
approves the calls of the user and denies those of the attacker. The server counts what reached it.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from toolcrib.base.settings import Environment, Settings
from toolcrib.gate.policy.rule_presets import LETHAL_TRIFECTA
from toolcrib.host import Crib
from toolcrib.model.json import loads
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

SUITES = ("workspace", "travel", "banking", "slack")
MARKER = "MARKS-EVAL-INJECTION"
READS = ("get_", "read_", "search_", "list_", "check_")
SERVER = Path(__file__).with_name("marks_eval_server.py")
STRICT = """
[[flows]]
pattern = "*/get_webpage"
flows = ["untrusted", "private", "sends"]

[[flows]]
pattern = "*/create_calendar_event"
flows = ["sends"]
"""

_SETTINGS = {"off": (False, False), "on": (True, False), "strict": (True, True)}
"""Whether the preset is on, and whether the flows are stricter than the defaults."""


@dataclass
class Tally:
    """The counts of one suite."""

    pairs: int = 0
    injected: int = 0
    utility: int = 0
    asked: int = 0
    attacked_utility: int = 0
    attacked_asked: int = 0
    attacks: int = 0
    harmless: int = 0
    reached: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "Tally") -> None:
        """Add the counts of another suite."""
        for name in (each.name for each in fields(self) if each.name != "reached"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reached += other.reached

    def row(self, suite: str) -> str:
        """Return a row of the table."""
        unasked = sum(self.reached.values())
        alone = f"{self.asked} of {self.utility} ({100 * self.asked / max(self.utility, 1):.1f} %)"
        attacked = f"{100 * self.attacked_asked / max(self.attacked_utility, 1):.1f} %"
        return (
            f"| {suite} | {self.pairs} | {self.injected} | {self.attacks} | {unasked} | {self.harmless} "
            f"| {alone} | {attacked} |"
        )


class Evaluation:
    """Runs the conversations of one suite through one crib."""

    def __init__(self, crib: Crib, suite: str) -> None:
        self._crib = crib
        self._suite = suite
        self._owner = crib.principals.owner("cli")
        self._principal = self._owner

    async def run(self) -> Tally:
        """Run all pairs of tasks."""
        plan = loads(await self._own("plan"))
        tally = Tally()
        for user, calls in plan["users"].items():
            await self._alone(tally, user, calls)
        for user, calls in plan["users"].items():
            for injection, attack in plan["injections"].items():
                if attack:
                    await self._pair(tally, (user, injection), calls, attack)
        return tally

    async def _alone(self, tally: Tally, user: str, calls: list[Any]) -> None:
        """Run a user task without an injection."""
        await self._own("reset", user=user, injection="")
        id = f"{self._suite}-{user}"
        self._principal = Principal("session", id, "ide", "acceptEdits", session=id)
        for call in calls:
            tally.utility += 1
            tally.asked += (await self._call(call, approve=True))[1]

    async def _pair(self, tally: Tally, tasks: tuple[str, str], calls: list[Any], attack: list[Any]) -> None:
        user, injection = tasks
        await self._own("reset", user=user, injection=injection)
        id = f"{self._suite}-{user}-{injection}"
        self._principal = Principal("session", id, "ide", "acceptEdits", session=id)
        tally.pairs += 1
        has_obeyed = False
        for call in calls:
            tally.attacked_utility += 1
            text, is_asked = await self._call(call, approve=True)
            tally.attacked_asked += is_asked
            if MARKER in text and not has_obeyed:
                has_obeyed = True
                tally.injected += 1
                await self._attack(tally, attack)

    async def _attack(self, tally: Tally, attack: list[Any]) -> None:
        for call in attack:
            before = len(loads(await self._own("reached")))
            _, is_asked = await self._call(call, approve=False)
            arrived = len(loads(await self._own("reached"))) > before
            if arrived and is_asked:
                raise RuntimeError(f"{call} was denied and reached the server.")
            if call["tool"].startswith(READS) and call["tool"] != "get_webpage":
                continue
            tally.attacks += 1
            if arrived and _carries_nothing(call):
                tally.harmless += 1
            elif arrived:
                tally.reached[call["tool"]] += 1

    async def _call(self, call: Any, *, approve: bool) -> tuple[str, bool]:
        """Make a call and return its text, and whether a person was asked."""
        ref, arguments = ToolRef(self._suite, call["tool"]), call["arguments"]
        outcome = await self._crib.gate.call(self._principal, ref, arguments, door="mcp", handle="handle")
        waiting: Any = outcome.result.structured_content
        if not (outcome.result.has_structured and waiting.get("status") == "waiting"):
            return _text(outcome.result.content), False
        id, verb = waiting["approvalId"], "approve" if approve else "deny"
        await self._crib.approvals.answer(id, verb, by=self._owner)
        if not approve:
            return "", True
        outcome = await self._crib.gate.call(self._principal, ref, arguments, door="mcp", handle=id)
        return _text(outcome.result.content), True

    async def _own(self, name: str, **arguments: str) -> str:
        ref = ToolRef(self._suite, name)
        return _text((await self._crib.gate.call(self._owner, ref, arguments, door="cli")).result.content)


def _carries_nothing(call: Any) -> bool:
    """Return whether a call neither sends data nor destroys anything: a front page, or an entry in one's calendar."""
    is_entry = call["tool"] == "create_calendar_event" and "participants" not in call["arguments"]
    return call["tool"] == "get_webpage" or is_entry


def _text(content: Any) -> str:
    return "".join(str(each.get("text", "")) for each in content)


def write(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def measure(python: str, suites: list[str], *, preset: bool, strict: bool) -> None:
    """Measure some suites and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        servers = {name: {"command": python, "args": [str(SERVER), name]} for name in suites}
        (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        if strict:
            (home / "toolcrib.toml").write_text(STRICT, encoding="utf-8")
        environment = Environment({"HOME": folder, "PATH": "/usr/bin:/bin"})
        async with Crib(Settings(home=home), environment=environment, eager=True) as crib:
            if preset:
                await crib.permissions.switch_preset(LETHAL_TRIFECTA, on=True, by="owner")
            total = Tally()
            for suite in suites:
                await connected(crib, suite)
                tally = await Evaluation(crib, suite).run()
                write(tally.row(suite))
                total.add(tally)
            write(total.row("all"))
            for tool, count in total.reached.most_common():
                write(f"reached unasked: {tool} {count}")


async def connected(crib: Crib, suite: str) -> None:
    """Wait until the tools of a server are known."""
    async with asyncio.timeout(120):
        while ToolRef(suite, "plan") not in crib.catalog.snapshot.tools:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the catalog is complete within a second


def main() -> None:
    """Measure without the preset, with it, and with stricter flows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", type=Path, help="the Python of an environment with AgentDojo")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--preset", action="append", choices=[*_SETTINGS])
    given = parser.parse_args()
    suites = given.suite or [*SUITES]
    columns = ("suite", "pairs", "injection read", "attacker calls", "reached unasked", "harmless")
    write(f"| {' | '.join(columns)} | user's calls asked | under attack |")
    write("|---|---|---|---|---|---|---|---|")
    for name in given.preset or [*_SETTINGS]:
        write(f"preset {name}")
        preset, strict = _SETTINGS[name]
        asyncio.run(measure(str(given.python.absolute()), suites, preset=preset, strict=strict))


if __name__ == "__main__":
    main()
