"""The lines of the scripted model, and the prompts they answer.

The lines are fixed whatever tools and users answer, so they make no claim that an answer could contradict. Only
`{{last_tool_result}}` repeats what a tool returned.
"""

from dataclasses import dataclass
from typing import Final

from toolcrib.model.json import Json, JsonObject

NOTICE: Final = (
    "This is a demonstration. The model is scripted: it runs on this machine and says the same lines whatever it is "
    "asked or told. The agent program, the tools, the rules, the approvals and the record are real; people and data "
    "are made up."
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A session to play: its agent, its prompt, and whether the demo answers the approval itself."""

    agent: str
    title: str
    prompt: str
    is_answered: bool = False


REFUND: Final = Scene(
    "support",
    "Two customers paid twice",
    "Elin Berg and the school in Lindholm write that they paid twice for Saturday's crossing. "
    "Find out what happened, and put it right.",
    is_answered=True,
)
RELEASE: Final = Scene(
    "release", "Release 4.2", "Prepare release 4.2: go through the checklist, and close what is done."
)


def _step(text: str, *calls: JsonObject) -> JsonObject:
    return {"blocks": [{"text": text}, *calls], "delay_ms": 150, "chunk_delay_ms": 12}


def _use(tool: str, **arguments: Json) -> JsonObject:
    server, _, name = tool.partition("/")
    return {"tool": f"mcp__{server}__{name}", "input": arguments}


SCRIPTS: Final[dict[str, Json]] = {
    "refund": {
        "when": r"paid twice|charged twice|refund",
        "steps": [
            _step(
                "I look at the order first, and at what the team knows already.",
                _use("orders/find_orders", passenger="Berg"),
                _use("tracker/search_issues", words="charged twice"),
            ),
            _step(
                "KES-118 describes it: the payment page sends again when it is reloaded. I compare the payments of "
                "both orders, and read what the notes say about refunds.",
                _use("orders/list_payments", order="K-2291"),
                _use("orders/list_payments", order="K-2304"),
                _use("notes/read", page="refunds"),
            ),
            _step(
                "Both orders were paid twice within seconds. The second payments go back: first Elin Berg's, P-7731 "
                "over 58.00 €. A team member has to approve it.",
                _use("orders/refund", payment="P-7731", amount=58.0, reason="Charged twice for order K-2291"),
            ),
            _step(
                "The shop answers: {{last_tool_result}}\n\nNow the school's second payment, P-7760 over 464.00 €.",
                _use("orders/refund", payment="P-7760", amount=464.0, reason="Charged twice for order K-2304"),
            ),
            _step(
                "That one is not mine to make. I leave accounting what they need.",
                _use(
                    "tracker/add_comment",
                    issue="KES-118",
                    text="For accounting: order K-2304 (Lindholm School) was paid twice, P-7759 and P-7760, 464.00 € "
                    "each. Please refund P-7760.",
                ),
            ),
            _step(
                "**What happened.** The payment page sent the payment again when it was reloaded (KES-118).\n\n"
                "| order | customer | second payment | |\n|---|---|---|---|\n"
                "| K-2291 | Elin Berg | P-7731, 58.00 € | a person of the team was asked |\n"
                "| K-2304 | Lindholm School | P-7760, 464.00 € | for accounting, comment on KES-118 |\n\n"
                "**Next.** Accounting refunds P-7760. The cause is mended with KES-121."
            ),
        ],
    },
    "release": {
        "when": r"release",
        "steps": [
            _step(
                "I read the checklist and what is open for 4.2.",
                _use("notes/read", page="release-checklist"),
                _use("tracker/list_issues", milestone="4.2"),
            ),
            _step(
                "KES-112 is merged and verified by Aiko, and still open. I would close it; whoever reported it is told "
                "then, so this is yours to decide.",
                _use(
                    "tracker/close_issue",
                    issue="KES-112",
                    reason="Merged, verified by Aiko on 12 November, part of release 4.2.",
                ),
            ),
            _step(
                "The tracker answers: {{last_tool_result}}\n\nWhat 4.2 still waits for:\n\n"
                "1. KES-121 (Samuel): the payment key per order; it waits for the provider's test account.\n"
                "2. KES-118 (Samuel, urgent): solved by KES-121.\n"
                "3. The word from Mara, and a day from Tuesday to Thursday."
            ),
        ],
    },
    "triage": {
        "when": r"triage|came in",
        "steps": [
            _step("I list what is new.", _use("tracker/list_issues", label="new")),
            _step(
                "One is about languages, the other sounds like KES-118.",
                _use("tracker/label_issue", issue="KES-123", labels="bug, receipts"),
                _use("tracker/label_issue", issue="KES-124", labels="bug, payment, double"),
            ),
            _step(
                "KES-124 is the same as KES-118, so I would close it.",
                _use("tracker/close_issue", issue="KES-124", reason="The same as KES-118."),
            ),
            _step(
                "KES-123 and KES-124 are labelled. About closing KES-124 the crib says: {{last_tool_result}}\n\n"
                "For a person: KES-124 is a double of KES-118; the customer waits for a refund."
            ),
        ],
    },
    "default": [
        _step(
            "I am a scripted model and have lines for three things only. Try one of these:\n\n"
            "- to the agent `support`: *A customer was charged twice. Please refund.*\n"
            "- to the agent `release`: *Prepare the release.*\n"
            "- to the agent `triage`: *Triage what came in.*\n\n"
            "With a key for a real model, `toolcrib chat --agent support` answers everything else."
        )
    ],
}
