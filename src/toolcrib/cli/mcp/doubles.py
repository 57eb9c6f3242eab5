"""`toolcrib mcp record` and `toolcrib mcp replay`: recordings of servers, and doubles that answer from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.completion import names_of
from toolcrib.cli.mcp.change import ask_crib
from toolcrib.cli.options import HomeOption, JsonOption, begin
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    from toolcrib.model.json import Json, JsonObject


def record(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The server.", show_default=False, autocompletion=names_of("server"))
    ],
    calls: Annotated[
        list[str] | None,
        typer.Option("--call", metavar="TOOL[=JSON]", help="Call this tool and record the result; repeatable."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="The new file (default: NAME.recording.json).")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record what a server offers and what it answers, for `toolcrib mcp replay`."""
    import json

    asked = [_call(text) for text in calls or ()]
    path = (file or Path(f"{name.replace('/', '_')}.recording.json")).expanduser()
    invocation = begin(ctx, home, as_json)
    recording = ask_crib(invocation, lambda client: client.record_server(name, asked))
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(json.dumps(recording, indent=2, ensure_ascii=False) + "\n")
    except FileExistsError as error:
        raise InvalidRequest("cli.usage", f"{path} already exists.", "Choose another file name.") from error
    except OSError as error:
        raise InvalidRequest("cli.usage", f"{path} cannot be written: {error.strerror}.") from error
    if invocation.as_json:
        output.document({"file": str(path), "tools": len(recording["tools"]), "calls": len(recording["exchanges"])})
    else:
        output.line(f"Recorded {len(recording['tools'])} tools and {len(recording['exchanges'])} calls in {path}.")


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording of a server.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Serve a recording as an MCP server on standard input and output. Nothing is started or contacted."""
    import sys

    from toolcrib.upstream.server_double import ServerDouble, parse_server_recording

    try:
        content = file.expanduser().read_bytes()
    except OSError as error:
        raise InvalidRequest("recording.invalid", f"{file} cannot be read: {error.strerror}.") from error
    double = ServerDouble(parse_server_recording(content, str(file)))
    for line in sys.stdin.buffer:
        if line.strip() and (answer := double.answer_line(line)) is not None:
            output.raw(answer)


def _call(text: str) -> "JsonObject":
    import json

    tool, equals, written = text.partition("=")
    try:
        arguments: Json = json.loads(written) if equals else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest("cli.usage", f"{text!r} is not TOOL=JSON with a JSON object.")
    return {"tool": tool, "arguments": arguments}
