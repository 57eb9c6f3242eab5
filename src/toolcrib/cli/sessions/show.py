"""Formats sessions as text and tables, and exports them to files."""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

SHORT_ID = 8
FORMATS = ("jsonl", "markdown")


def show_sessions(found: "Sequence[JsonObject]") -> None:
    """Print the list, most recently used first; sessions known only to Claude Code are marked."""
    if not found:
        output.note("No sessions found.")
        return
    output.table(("session", "state", "agent", "mode", "used", "title", "directory"), [_row(each) for each in found])


def _row(session: "JsonObject") -> tuple[str, ...]:
    # Sessions of Claude Code get their full id: the crib resolves abbreviations only of its own.
    kept = session.get("origin") == "claude_code"
    id = str(session["id"])
    return (
        id if kept else id[:SHORT_ID],
        "kept by Claude Code" if kept else str(session["state"]),
        str(session.get("agentId") or "-"),
        str(session.get("mode") or "-"),
        output.when(session["updatedAt"]),
        output.one_line(str(session.get("title") or ""), 60),
        str(session["cwd"]),
    )


def show_session(session: "JsonObject", waiting: int) -> None:
    """Print one session: state, settings, usage and the next step."""
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
        ("has read", describe_marks(session)),
        ("used", describe_cost(session)),
        ("created", output.when(session["createdAt"])),
        ("last used", output.when(session["updatedAt"])),
    ]
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<12} {output.one_line(str(value), 1000)}")
    if waiting:
        output.line(
            f"\n{waiting} {'approval pending' if waiting == 1 else 'approvals pending'}: `toolcrib approvals list`."
        )
    output.line(f"\nContinue with `{resume_command(session)}`.")


def describe_marks(shape: "JsonObject") -> str:
    """Return what a conversation has read, with the calls; empty if it has no marks."""
    from toolcrib.cli.rules_marks import calls_of
    from toolcrib.model.marks import MARK_WORDS

    return ", ".join(f"{MARK_WORDS[each['mark']]} with {calls_of(each)}" for each in shape.get("marks", ()))


def describe_cost(session: "JsonObject") -> str:
    """Return the usage of a session in words."""
    tokens = f"{session['inputTokens']:,} tokens in, {session['outputTokens']:,} out"
    return f"{session['costUsd']:.4f} USD, {tokens}, {session['turns']} turns"


def resume_command(session: "JsonObject") -> str:
    """Return the command that resumes a session."""
    return f"toolcrib chat --resume {str(session['id'])[:SHORT_ID]}"


async def export_to(client: "ApiClient", id: str, file: str, form: str) -> str:
    """Write a session to a new file and return its path; an existing file is never overwritten."""
    import anyio

    path = await anyio.Path(file).expanduser()
    try:
        async with await path.open("xb") as opened:
            try:
                async for piece in client.sessions.transcript(id, form):
                    await opened.write(piece)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await path.unlink(missing_ok=True)  # a partial file could be mistaken for a complete one
                raise
    except FileExistsError as error:
        raise InvalidRequest("cli.usage", f"{path} already exists.", "Choose another file name.") from error
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{path} cannot be written: {error.strerror}.") from error
    return str(path)


def introduce(session: "JsonObject", *, is_new: bool) -> None:
    """Print the heading of a chat."""
    agent = f" with agent {session['agentId']}" if session.get("agentId") else ""
    which = "New session" if is_new else "Session"
    output.line(f"{which} {str(session['id'])[:SHORT_ID]}{agent}, mode {session['mode']}, in {session['cwd']}.")
    output.line("Type /help for commands, Ctrl-C to interrupt, Ctrl-D to quit.")
