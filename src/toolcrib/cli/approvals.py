"""`toolcrib approvals`: open questions with everything a person has to know, and the answers to them.

Above: `main`. Below: `client`, through `crib`. It must never answer for a person: an answer is one command for one
question.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.mcp_change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin, common
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

app = typer.Typer(name="approvals", rich_markup_mode=None)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The question.", show_default=False)]
ScopeOption = Annotated[
    str,
    typer.Option("--scope", metavar="S", help="How long it holds: once, session or always; the last two write a rule."),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; where it is no, the model is told.")
]
_SCOPES = ("once", "session", "always")
_STATUSES = ("pending", "approved", "denied", "expired", "withdrawn")


@app.callback()
def approvals(ctx: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Answer what agents and clients ask a person."""
    ctx.obj = common(ctx, home, as_json)


@app.command("list")
def list_approvals(
    ctx: typer.Context,
    status: Annotated[str, typer.Option("--status", metavar="S", help=f"{', '.join(_STATUSES)} or all.")] = "pending",
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only of this session.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open questions, each with the whole arguments."""
    if status not in (*_STATUSES, "all"):
        raise InvalidRequest("cli.usage", f"{status!r} is not a status.", f"Choose {', '.join(_STATUSES)} or all.")
    invocation = begin(ctx, home, as_json)
    asked = None if status == "all" else status
    found = ask_crib(invocation, lambda client: client.permissions.approvals(status=asked, session=session))
    if invocation.as_json:
        output.document(found)
        return
    if not found:
        output.note("Nothing waits for an answer." if status == "pending" else "There are no such questions.")
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
        str | None, typer.Option("--arguments", metavar="JSON", help="Call it with these arguments instead.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a call be made, once; with --scope also those like it."""
    from toolcrib.cli.arguments import parse_arguments

    edited = parse_arguments(arguments) if arguments is not None else None
    _answer(ctx, id, {"decision": "approve", "scope": scope, "reason": reason, "arguments": edited}, home, as_json)


@app.command("deny")
def deny(
    ctx: typer.Context,
    id: IdArgument,
    reason: ReasonOption = None,
    scope: ScopeOption = "once",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a call, with a reason that the model sees."""
    _answer(ctx, id, {"decision": "deny", "scope": scope, "reason": reason}, home, as_json)


@app.command("answer")
def answer(
    ctx: typer.Context,
    id: IdArgument,
    answers: Annotated[
        list[str],
        typer.Option(
            "--answer",
            metavar="QUESTION=CHOICE",
            help="What to say to a question; can be given again. With one question its text may be left out.",
            show_default=False,
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer what an agent asks in its session: a choice, several choices, or words of your own."""
    invocation = begin(ctx, home, as_json)

    async def work(client: "Client") -> "JsonObject":
        asked = await client.permissions.approval(id)
        if asked.get("kind") != "question":
            hint = f"Use `toolcrib approvals approve {id}` or `deny {id}`."
            raise InvalidRequest("cli.usage", f"{id} asks whether a call may be made.", hint)
        given = read_answers([str(each["question"]) for each in asked["questions"]], answers)
        return await client.permissions.answer_agent(id, given)

    answered = ask_crib(invocation, work)
    if invocation.as_json:
        output.document(answered)
    else:
        output.line("Answered.")


def read_answers(questions: "Sequence[str]", given: "Sequence[str]") -> "dict[str, str | list[str]]":
    """Answers by question. A question may hold `=` itself, so its whole text is looked for."""
    answers: dict[str, list[str]] = {}
    for each in given:
        question = next((text for text in questions if each.startswith(f"{text}=")), None)
        if question is None and len(questions) > 1:
            hint = f"Asked is: {'; '.join(questions)}"
            raise InvalidRequest("cli.usage", f"{each!r} names no question. Write QUESTION=CHOICE.", hint)
        text = questions[0] if question is None else question
        answers.setdefault(text, []).append(each if question is None else each.removeprefix(f"{text}="))
    return {text: words if len(words) > 1 else words[0] for text, words in answers.items()}


def _answer(ctx: typer.Context, id: str, body: "JsonObject", home: str | None, as_json: bool) -> None:
    if body["scope"] not in _SCOPES:
        raise InvalidRequest("cli.usage", f"{body['scope']!r} is not a scope.", f"Choose {' or '.join(_SCOPES)}.")
    invocation = begin(ctx, home, as_json)
    given = {key: value for key, value in body.items() if value is not None}
    approval = ask_crib(invocation, lambda client: client.permissions.answer(id, given))
    if invocation.as_json:
        output.document(approval)
        return
    output.line(f"{approval['server']}/{approval['tool']} was {approval['status']}.")
    if rule := approval.get("rule"):
        output.line(f"Rule {rule['id']} says so from now on: {rule['effect']} {rule['pattern']}.")


def _show(approval: "JsonObject") -> None:
    """One question: nothing of the arguments is cut, and nothing in them can hide or pass for words of ours."""
    asker = approval["principal"]
    who = ", ".join(str(asker[part]) for part in ("name", "source", "agent", "cwd") if part in asker)
    facts = [
        ("question", f"{approval['id']} ({approval['status']})"),
        ("tool", f"{approval['server']}/{approval['tool']}"),
        ("asker", f"{who}, through {approval['door']}"),
        ("session", approval.get("sessionId")),
        ("why", approval["why"]),
        ("asked", approval["createdAt"]),
        ("expires", approval["expiresAt"]),
        ("answered", _answered(approval)),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<10} {output.one_line(value, 1000)}")
    shown = approval["shown"]
    for remark in shown["remarks"]:
        where = remark["pointer"] or "the arguments"
        output.line(f"{'CAREFUL:':<10} {output.one_line(where, 1000)}: {output.one_line(remark['message'], 1000)}")
    output.line("arguments:")
    for line in shown["text"].split("\n"):
        output.line(f"  {line}")


def _show_question(question: "JsonObject") -> None:
    """What an agent asks, with its choices."""
    facts = [("question", f"{question['id']} ({question['status']})"), ("session", question["sessionId"])]
    facts.append(("asked", question["createdAt"]))
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<10} {output.one_line(value, 1000)}")
    for each in question["questions"]:
        several = " (several may be chosen)" if each.get("multiSelect") else ""
        output.line(f"{'asks:':<10} {output.one_line(str(each.get('question')), 2000)}{several}")
        for option in each.get("options") or ():
            described = output.one_line(str(option.get("description") or ""), 1000)
            output.line(f"  - {output.one_line(str(option.get('label')), 1000)}{described and ': ' + described}")
    output.line(f"answer with: toolcrib approvals answer {question['id']} --answer QUESTION=CHOICE")


def _answered(approval: "JsonObject") -> str | None:
    if "decidedAt" not in approval:
        return None
    by = f" by {approval['decidedBy']}" if "decidedBy" in approval else ""
    reason = f": {approval['reason']}" if "reason" in approval else ""
    return f"{approval['decidedAt']}{by}{reason}"
