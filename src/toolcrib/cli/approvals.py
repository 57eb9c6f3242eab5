"""`toolcrib approvals`: list and answer pending approvals and questions.

Must never answer on its own: one command answers one approval.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import CommandGroup, HomeOption, JsonOption, begin, common
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.cli.options import Invocation
    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

app = typer.Typer(name="approvals", rich_markup_mode=None, cls=CommandGroup)

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of the approval or question.",
        show_default=False,
        autocompletion=names_of("approval"),
    ),
]
ScopeOption = Annotated[
    str,
    typer.Option("--scope", metavar="S", help="once, session or always; session and always create a rule."),
]
PrefixOption = Annotated[
    str | None,
    typer.Option("--prefix", metavar="WORDS", help="With --scope: create the wider rule for this prefix, as listed."),
]
ConditionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--if",
        metavar="TEST",
        help="With --scope: the rule has these conditions 'POINTER TEST VALUE' instead of the proposed ones.",
    ),
]
UsesOption = Annotated[
    int | None, typer.Option("--next", metavar="N", min=1, help="With --scope: the rule allows the next N calls.")
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="With --scope: the rule ends at this time: 18:00, or ISO 8601."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Create the rule of --scope without confirmation.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason; the model sees it if the call is denied.")
]
_SCOPES = ("once", "session", "always")
_STATUSES = ("pending", "approved", "denied", "expired", "withdrawn")


@app.callback()
def approvals(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List and answer approvals."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_approvals(
    ctx: typer.Context,
    status: Annotated[
        str, typer.Option("--status", metavar="S", help=f"Only with this status: {', '.join(_STATUSES)} or all.")
    ] = "pending",
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="Only approvals of this session.", autocompletion=names_of("session")
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List approvals with their full arguments."""
    if status not in (*_STATUSES, "all"):
        raise InvalidRequest("cli.usage", f"{status!r} is not a status.", f"Choose {', '.join(_STATUSES)} or all.")
    invocation = begin(ctx, home, as_json)
    asked = None if status == "all" else status
    found = ask_crib(invocation, lambda client: client.permissions.approvals(status=asked, session=session))
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("No pending approvals." if status == "pending" else "No approvals found.")
    for number, approval in enumerate(found):
        if number:
            output.line()
        if approval.get("kind") == "question":
            _show_question(approval)
        else:
            _show(approval)


@app.command("approve")
def approve(
    ctx: typer.Context,
    id: IdArgument,
    scope: ScopeOption = "once",
    reason: ReasonOption = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Call the tool with these arguments instead.")
    ] = None,
    prefix: PrefixOption = None,
    conditions: ConditionsOption = None,
    uses: UsesOption = None,
    until: UntilOption = None,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a call once, or with --scope also similar calls."""
    from toolcrib.cli.arguments import parse_arguments
    from toolcrib.cli.rules import parse_condition

    edited = parse_arguments(arguments) if arguments is not None else None
    body: JsonObject = {"decision": "approve", "scope": scope, "reason": reason, "arguments": edited, "prefix": prefix}
    body["conditions"] = [parse_condition(text) for text in conditions] if conditions else None
    body |= {"uses": uses, "expiresAt": parse_until(until) if until is not None else None}
    _answer(begin(ctx, home, as_json), id, body, confirmed=yes)


@app.command("deny")
def deny(
    ctx: typer.Context,
    id: IdArgument,
    reason: ReasonOption = None,
    scope: ScopeOption = "once",
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny a call; the model sees the reason."""
    body = {"decision": "deny", "scope": scope, "reason": reason}
    _answer(begin(ctx, home, as_json), id, body, confirmed=yes)


@app.command("link")
def link(
    ctx: typer.Context,
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The id of the approval.", show_default=False, autocompletion=names_of("approval")
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a one-time link that answers an approval from another device."""
    invocation = begin(ctx, home, as_json)
    made = ask_crib(invocation, lambda client: client.permissions.link(id))
    if invocation.as_json:
        output.document(made)
        return
    output.line(made["url"])
    output.note(f"It works once, until {made['expiresAt']}. Anyone who has it can answer this approval.")


@app.command("answer")
def answer(
    ctx: typer.Context,
    id: IdArgument,
    answers: Annotated[
        list[str],
        typer.Option(
            "--answer",
            metavar="QUESTION=CHOICE",
            help="The answer to a question; repeatable. If there is only one question, CHOICE is enough.",
            show_default=False,
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer an agent's question: one choice, several, or free text."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "ApiClient") -> "JsonObject":
        asked = await client.permissions.approval(id)
        if asked.get("kind") != "question":
            hint = f"Use `toolcrib approvals approve {id}` or `deny {id}`."
            raise InvalidRequest("cli.usage", f"{id} is an approval, not a question.", hint)
        given = read_answers([str(each["question"]) for each in asked["questions"]], answers)
        return await client.permissions.answer_agent(id, given)

    answered = ask_crib(invocation, work)
    invocation.confirm(answered, "Answered.")


def read_answers(questions: "Sequence[str]", given: "Sequence[str]") -> "dict[str, str | list[str]]":
    """Return the answers by question. A question may contain `=`, so its whole text is matched."""
    answers: dict[str, list[str]] = {}
    for each in given:
        question = next((text for text in questions if each.startswith(f"{text}=")), None)
        if question is None and len(questions) > 1:
            hint = f"Questions: {'; '.join(questions)}"
            raise InvalidRequest("cli.usage", f"{each!r} does not match a question. Use QUESTION=CHOICE.", hint)
        text = questions[0] if question is None else question
        answers.setdefault(text, []).append(each if question is None else each.removeprefix(f"{text}="))
    return {text: words if len(words) > 1 else words[0] for text, words in answers.items()}


def parse_until(text: str) -> str:
    """Return the next moment with this local time of day, or the moment of an ISO 8601 text."""
    from datetime import datetime, time, timedelta

    now = datetime.now().astimezone()
    try:
        if len(text) <= len("18:00:00") and ":" in text:
            at = datetime.combine(now.date(), time.fromisoformat(text), now.tzinfo)
            return (at if at > now else at + timedelta(days=1)).isoformat()
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest("cli.usage", f"{text!r} is not a time.", "Write 18:00 or 2030-01-31T18:00.") from error
    return (at if at.tzinfo is not None else at.astimezone()).isoformat()


def _answer(invocation: "Invocation", id: str, body: "JsonObject", *, confirmed: bool) -> None:
    from toolcrib.cli.asking import can_ask, confirm
    from toolcrib.cli.rules import describe_rule

    if body["scope"] not in _SCOPES:
        raise InvalidRequest("cli.usage", f"{body['scope']!r} is not a scope.", f"Choose {' or '.join(_SCOPES)}.")
    given = {key: value for key, value in body.items() if value is not None}
    if body["scope"] != "once":
        asked = ask_crib(invocation, lambda client: client.permissions.approval(id))
        sentence = _rule_of(asked, given)
        if sentence is not None:
            output.note(f"This creates a rule: {output.one_line(sentence, 5000)}{_limits_of(given)}")
            if not confirmed and not invocation.as_json and can_ask() and not confirm("Create it?"):
                raise typer.Exit(1)
    approval = ask_crib(invocation, lambda client: client.permissions.answer(id, given))
    if invocation.as_json:
        output.document(approval)
        return
    output.line(f"{approval['server']}/{approval['tool']} was {approval['status']}.")
    if rule := approval.get("rule"):
        output.line(f"Added rule {rule['id']}: {output.one_line(describe_rule(rule), 5000)}.")


def _limits_of(given: "JsonObject") -> str:
    """Return how the answer changes the proposed rule, in words."""
    from toolcrib.cli.rules import describe_scope

    changes = [f"with the conditions {describe_scope(given)}"] if "conditions" in given else []
    changes += [f"for the next {given['uses']} calls"] if "uses" in given else []
    changes += [f"until {given['expiresAt']}"] if "expiresAt" in given else []
    return f" Changed: {', '.join(changes)}." if changes else ""


def _rule_of(approval: "JsonObject", given: "JsonObject") -> str | None:
    """Return the rule that an answer would write, in words; None if the crib will reject the answer."""
    rules: JsonObject = approval.get("rememberAs", {})
    if given["scope"] not in rules:
        return None
    proposed: JsonObject = rules[given["scope"]][given["decision"]]
    if "prefix" not in given:
        return str(proposed["sentence"])
    wider: list[JsonObject] = proposed.get("prefixes", [])
    return next((str(each["sentence"]) for each in wider if each["prefix"] == given["prefix"]), None)


def _show(approval: "JsonObject") -> None:
    """Print one approval. Arguments are printed in full and escaped: they can neither hide text nor imitate output."""
    principal = approval["principal"]
    caller = ", ".join(str(principal[part]) for part in ("name", "source", "agent", "cwd") if part in principal)
    facts = [
        ("question", f"{approval['id']} ({approval['status']})"),
        ("tool", f"{approval['server']}/{approval['tool']}"),
        ("principal", f"{caller}, through {approval['door']}"),
        ("session", approval.get("sessionId")),
        ("why", approval["why"]),
        ("asked", output.when(approval["createdAt"])),
        ("expires", output.when(approval["expiresAt"])),
        ("answered", _answered_by(approval)),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<10} {output.one_line(value, 1000)}")
    shown = approval["shown"]
    for remark in shown["remarks"]:
        where = remark["pointer"] or "the arguments"
        output.line(f"{'CAREFUL:':<10} {output.one_line(where, 1000)}: {output.one_line(remark['message'], 1000)}")
    output.line(f"arguments: {shown['characters']:,} characters")
    for argument in shown["arguments"]:
        if argument["collapsed"]:
            output.line(
                f"{'LONG:':<10} {output.one_line(argument['name'], 1000)}: {argument['characters']:,} characters"
            )
    for line in shown["text"].split("\n"):
        output.line(f"  {line}")
    _show_rules(approval)


def _show_rules(approval: "JsonObject") -> None:
    """Print the rule that each wider scope would write."""
    if refusal := approval.get("onceOnly"):
        output.line(f"{'once only:':<10} {output.one_line(refusal, 1000)}")
    rules: JsonObject = approval.get("rememberAs", {})
    for scope, proposed in rules.items():
        approve: JsonObject = proposed["approve"]
        output.line(f"--scope {scope} creates: {output.one_line(approve['sentence'], 5000)}")
        for each in approve.get("prefixes", ()):
            output.line(
                f"  --prefix {output.one_line(repr(each['prefix']), 5000)}: {output.one_line(each['sentence'], 5000)}"
            )


def _show_question(question: "JsonObject") -> None:
    """Print an agent's question with its choices."""
    facts = [("question", f"{question['id']} ({question['status']})"), ("session", question["sessionId"])]
    facts.append(("asked", output.when(question["createdAt"])))
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<10} {output.one_line(value, 1000)}")
    for each in question["questions"]:
        several = " (multiple choices allowed)" if each.get("multiSelect") else ""
        output.line(f"{'asks:':<10} {output.one_line(str(each.get('question')), 2000)}{several}")
        for option in each.get("options") or ():
            described = output.one_line(str(option.get("description") or ""), 1000)
            output.line(f"  - {output.one_line(str(option.get('label')), 1000)}{described and ': ' + described}")
    output.line(f"answer with: toolcrib approvals answer {question['id']} --answer QUESTION=CHOICE")


def _answered_by(approval: "JsonObject") -> str | None:
    if "decidedAt" not in approval:
        return None
    by = f" by {approval['decidedBy']}" if "decidedBy" in approval else ""
    reason = f": {approval['reason']}" if "reason" in approval else ""
    return f"{output.when(approval['decidedAt'])}{by}{reason}"
