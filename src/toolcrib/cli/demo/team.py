"""The team's agents and schedules, as REST API bodies.

Three agents come with every new crib; the others are made for the team. Their prompts would work with a real model too.
"""

from typing import Final

from toolcrib.model.json import JsonObject

LEAVING: Final = ("architect", "builder", "security", "tester")
"""Default agents that the team does not need; reviewer, debugger and writer stay."""


def _lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


AGENTS: Final[tuple[JsonObject, ...]] = (
    {
        "id": "support",
        "name": "Customer Support",
        "description": "Finds out what happened to an order, and puts it right as far as the team's rules allow.",
        "systemPrompt": _lines("""
            You help customers of Kestrel, a ferry line. Look at the order and its payments before you say anything
            about them, and search the tracker: others may have had the same. Read the notes on what you are about to
            do.

            Do what the notes allow. Where a rule stops you, do not look for a way around it: say who can do it, and
            leave them everything they need in a comment.
        """),
        "skills": [
            {"name": "Say it in numbers", "description": "Name order, payment and amount whenever you speak of money."},
            {"name": "One answer", "description": "End with what was done, what was not, and who is next."},
        ],
        "toolPermissions": ["orders/*", "tracker/*", "notes/*"],
        "includeBrain": True,
        "mode": "default",
        "brainEntries": [
            {
                "type": "decision",
                "content": "Payments that were taken twice: keep the first, refund the second, name KES-118.",
                "pinned": True,
                "tags": ["payment"],
            }
        ],
    },
    {
        "id": "triage",
        "name": "Triage",
        "description": "Looks through what came in, labels it, finds doubles, and says what needs a person.",
        "systemPrompt": _lines("""
            You sort new issues. For each: is it known already, whom does it concern, how bad is it for a customer
            today? Put labels in place of `new`. You never decide what is done about it.
        """),
        "toolPermissions": ["tracker/*", "notes/*"],
        "mode": "default",
    },
    {
        "id": "release",
        "name": "Release Manager",
        "description": "Goes through the checklist of a release and brings every open point to a person.",
        "systemPrompt": _lines("""
            You prepare releases by the checklist in the notes, point by point. Believe nothing that you have not read.
            Close what is merged and verified; name what is missing, and who has it. Mara gives the word.
        """),
        "toolPermissions": ["tracker/*", "notes/*", "claude_code/Read", "claude_code/Grep", "claude_code/Glob"],
        "mode": "default",
    },
)

MORNING: Final = "Morning triage"

SCHEDULES: Final[tuple[JsonObject, ...]] = (
    {
        "name": MORNING,
        "agentId": "triage",
        "prompt": "Triage what came in since yesterday: label it, and say what needs a person.",
        "cron": "30 7 * * 1-5",
        "tools": ["tracker/list_issues", "tracker/label_issue"],
        "limits": {"turns": 20, "seconds": 600},
    },
    {
        "name": "Release notes on Friday",
        "agentId": "writer",
        "prompt": "Write what customers can notice of this week's work, two sentences each.",
        "cron": "0 14 * * 5",
        "tools": ["tracker/search_issues", "notes/append"],
    },
    {
        "name": "Look at open reviews",
        "agentId": "reviewer",
        "prompt": "Which changes have waited for a review for more than a day?",
        "everySeconds": 14_400,
        "mode": "plan",
    },
)
