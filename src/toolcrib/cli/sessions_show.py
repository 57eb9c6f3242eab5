"""Sessions as words and tables for a person, and as files.

Above: the `sessions` commands and the chat. Below: `output`, the client.
"""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.client import Client
    from toolcrib.model.json import JsonObject

SHORT_ID = 8
FORMATS = ("jsonl", "markdown")


def show_sessions(found: "Sequence[JsonObject]") -> None:
    """The list, the one that was last used first; those that only Claude Code knows say so."""
    if not found:
        output.note("There are no such sessions.")
        return
    output.table(("session", "state", "agent", "mode", "used", "title", "directory"), [_row(each) for each in found])


def _row(session: "JsonObject") -> tuple[str, ...]:
    # A conversation that was found is named in full: a short name means only what the crib knows.
    kept = session.get("origin") == "claude_code"
    id = str(session["id"])
    return (
        id if kept else id[:SHORT_ID],
        "kept by Claude Code" if kept else str(session["state"]),
        str(session.get("agentId") or "-"),
        str(session.get("mode") or "-"),
        str(session["updatedAt"])[:16].replace("T", " "),
        output.one_line(str(session.get("title") or ""), 60),
        str(session["cwd"]),
    )


def show_session(session: "JsonObject", waiting: int) -> None:
    """One session: what it is, how it stands, what it has used, what comes next."""
    facts = [
        ("session", session["id"]),
        ("title", session.get("title")),
        ("state", session["state"]),
        ("why", session.get("reason")),
        ("agent", session.get("agentId")),
        ("mode", session["mode"]),
        ("model", session.get("model")),
        ("source", session["source"]),
        ("directory", session["cwd"]),
        ("runtime", session["runner"]),
        ("forked from", session.get("forkedFrom")),
        ("started by", session.get("creator")),
        ("used", describe_cost(session)),
        ("created", session["createdAt"]),
        ("last used", session["updatedAt"]),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<12} {output.one_line(str(value), 1000)}")
    if waiting:
        output.line(f"\n{waiting} {'question waits' if waiting == 1 else 'questions wait'}: `toolcrib approvals list`.")
    output.line(f"\nGo on with `{resume_command(session)}`.")


def describe_cost(session: "JsonObject") -> str:
    """What a session has used so far, in words."""
    tokens = f"{session['inputTokens']:,} tokens in, {session['outputTokens']:,} out"
    return f"{session['costUsd']:.4f} USD, {tokens}, {session['turns']} turns"


def resume_command(session: "JsonObject") -> str:
    """What to type to go on."""
    return f"toolcrib chat --resume {str(session['id'])[:SHORT_ID]}"


async def export_to(client: "Client", id: str, file: str, form: str) -> str:
    """Write a session to a new file, and say where that is; one that is there stays as it is."""
    import anyio

    path = await anyio.Path(file).expanduser()
    try:
        async with await path.open("xb") as opened:
            try:
                async for piece in client.sessions.transcript(id, form):
                    await opened.write(piece)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await path.unlink(missing_ok=True)  # half a file would pass for a whole one
                raise
    except FileExistsError as error:
        raise InvalidRequest("cli.usage", f"{path} exists already.", "Name another file.") from error
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{path} cannot be written: {error.strerror}.") from error
    return str(path)


def introduce(session: "JsonObject", *, is_new: bool) -> None:
    """What a chat begins with."""
    agent = f" with agent {session['agentId']}" if session.get("agentId") else ""
    which = "New session" if is_new else "Session"
    output.line(f"{which} {str(session['id'])[:SHORT_ID]}{agent}, mode {session['mode']}, in {session['cwd']}.")
    output.line("/help lists commands, Ctrl-C interrupts, Ctrl-D leaves.")
