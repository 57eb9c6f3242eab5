"""`toolcrib sessions replay|compare` and the export of recordings."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

    from toolcrib.model.json import JsonObject
    from toolcrib.web.api_client.api_client import ApiClient

_SHORT_ID = 8
_WIDTH = 70


def replay(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE",
            help="A recorded session, or an exported recording.",
            show_default=False,
            autocompletion=names_of("session"),
        ),
    ],
    live_tools: Annotated[bool, typer.Option("--live-tools", help="Call tools, with their effects.")] = False,
    live_model: Annotated[bool, typer.Option("--live-model", help="Send requests to the model.")] = False,
    until: Annotated[
        int | None, typer.Option("--until", metavar="SEQ", min=1, help="End at this event of the recorded session.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Then continue with this prompt, as a live fork.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="The directory of the replay.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recorded session again, with model answers and tool results from the recording.

    Nothing is called unless it is chosen to be live. What was not recorded fails the replay.
    """
    from pathlib import Path

    body: JsonObject = {"liveTools": live_tools, "liveModel": live_model}
    body |= {"until": until} if until is not None else {}
    body |= {"prompt": prompt} if prompt is not None else {}
    body |= {"cwd": str(Path(cwd).expanduser().absolute())} if cwd is not None else {}
    invocation = begin(ctx, home, as_json)
    file = Path(session).expanduser()
    if file.is_file():
        text = _read(file)
        outcome = ask_crib(invocation, lambda client: client.sessions.replay_recording(text, body))
    else:
        outcome = ask_crib(invocation, lambda client: client.sessions.replay(session, body))
    _show_outcome(invocation, outcome)
    if outcome["reason"] not in ("completed", "interrupted"):
        raise typer.Exit(1)


def compare(
    ctx: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="ID", help="A session.", show_default=False, autocompletion=names_of("session"))
    ],
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", help="The session to compare with.", show_default=False, autocompletion=names_of("session")
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two sessions side by side: prompts, calls, results and cost."""
    invocation = begin(ctx, home, as_json)
    found = ask_crib(invocation, lambda client: client.sessions.compare(session, other))
    if invocation.as_json:
        output.document(found)
    else:
        _show_comparison(found, all_steps=True)


def export_recording(invocation: Invocation, session: str, file: str | None, *, as_test: bool) -> None:
    """Write a recording to a new file, or as a test with the recording beside it."""
    from pathlib import Path

    async def work(client: "ApiClient") -> bytes:
        return b"".join([piece async for piece in client.sessions.recording(session)])

    lines = ask_crib(invocation, work)
    if not as_test and file is None:
        output.raw(lines)
        return
    suffix = ".py" if as_test else ".jsonl"
    path = Path(file or f"test_session_{session[:_SHORT_ID]}{suffix}").expanduser()
    if path.suffix != suffix:
        raise InvalidRequest("cli.usage", f"{path} does not end with {suffix}.")
    written = [path.with_suffix(".jsonl")]
    _write_new(written[0], lines)
    if as_test:
        _write_new(path, _test_source(lines).encode())
        written.insert(0, path)
    if invocation.as_json:
        output.document({"files": [str(each) for each in written]})
    else:
        output.note(f"Wrote {' and '.join(str(each) for each in written)}.")


def _test_source(lines: bytes) -> str:
    from toolcrib.agents.sessions.recording.as_test import module_source
    from toolcrib.agents.sessions.recording.recordings import load_recording

    return module_source(load_recording(lines))


def _write_new(path: "Path", content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise InvalidRequest("cli.usage", f"{path} already exists.", "Choose another file name.") from error
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{path} cannot be written: {error.strerror}.") from error


def _read(file: "Path") -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("recording.invalid", f"{file} cannot be read: {error}.") from error


def _show_outcome(invocation: Invocation, outcome: "JsonObject") -> None:
    if invocation.as_json:
        output.document(outcome)
        return
    output.line(f"Replay {outcome['session']['id']}: {outcome['reason']}.")
    if "comparison" in outcome:
        _show_comparison(outcome["comparison"], all_steps=False)
    if "failure" in outcome:
        output.line(f"\n{outcome['failure']['message']}")
        if hint := outcome["failure"].get("hint"):
            output.note(f"hint: {hint}")


def _show_comparison(found: "JsonObject", *, all_steps: bool) -> None:
    shown = [step for step in found["steps"] if all_steps or not step["same"]]
    if shown:
        rows = [("" if step["same"] else "≠", _step(step["left"]), _step(step["right"])) for step in shown]
        left, right = (str(found[side]["sessionId"])[:_SHORT_ID] for side in ("left", "right"))
        output.table(("", left, right), rows)
    costs = " / ".join(f"{found[side]['costUsd']:.4f} USD" for side in ("left", "right"))
    count = found["differences"]
    output.line(f"{count} {'difference' if count == 1 else 'differences'}, cost {costs}")


def _step(step: "JsonObject | None") -> str:
    if step is None:
        return "-"
    if step["kind"] != "call":
        return output.one_line(f"{step['kind']}: {step['name']}", _WIDTH)
    text = f"{step['name']} {output.compact(step['arguments'])} → {output.compact(step['result'])}"
    return output.one_line(text, _WIDTH)
