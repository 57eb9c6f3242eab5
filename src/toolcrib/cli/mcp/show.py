"""Formats servers, trust questions and changes as text and tables.

Values are already masked. Must never read a file itself.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.model.times import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.model.json import JsonObject

_STDERR_LINES = 5


def show_servers(servers: "Sequence[JsonObject]", problems: "Sequence[JsonObject]") -> None:
    """Print the list, one row per location, then all problems with hints."""
    if servers:
        rows = [row for server in servers for row in _rows(server)]
        output.table(("name", "type", "state", "sandbox", "tools", "ms", "client", "defined in"), rows)
    else:
        output.note("No servers found.")
    for server in servers:
        if server["sameAs"]:
            output.line(f"{output.one_line(server['name'])} is also defined as {', '.join(server['sameAs'])}.")
    for server in servers:
        if server["state"] in ("failed", "needs_auth"):
            output.line()
            show_status(server)
    wrong = [*problems, *(problem for server in servers for problem in server["problems"])]
    if wrong:
        output.line("\nproblems:")
    for problem in wrong:
        output.line(f"  {describe_problem(problem)}")


def show_status(server: "JsonObject") -> None:
    """Print the connection state of a server, its last error with its stderr, and the next step."""
    output.line(f"{server['name']}: {describe_state(server)}. {output.one_line(server['sentence'], 1000)}")
    if (error := server.get("lastError")) and output.one_line(error, 1000) not in server["sentence"]:
        output.line(f"  last error: {output.one_line(error, 1000)}")
    if "exitCode" in server:
        output.line(f"  exit code: {server['exitCode']}")
    for line in server.get("stderr", ())[-_STDERR_LINES:]:
        output.line(f"  stderr: {output.one_line(line, 1000)}")
    if server["state"] == "connected":
        latency = f", latency {duration(server['latencyMs'])}" if "latencyMs" in server else ""
        output.line(f"  {server['tools']} tools{latency}")
    elif server.get("action"):
        output.line(f"  next: {server['action']}")


def describe_problem(problem: "JsonObject") -> str:
    """Return a problem with location and hint, indented for a list."""
    place = _place(problem) if "file" in problem else ""
    text = f"{place}: {problem['message']}" if place else str(problem["message"])
    hint = f"\n    hint: {output.one_line(problem['hint'], 1000)}" if "hint" in problem else ""
    return output.one_line(text, 1000) + hint


def describe_state(server: "JsonObject") -> str:
    """Return the state in words."""
    from toolcrib.model.servers import STATE_LABELS

    state = server["state"]
    label = str(server.get("label") or STATE_LABELS.get(state, state)).lower()
    words = f"shadowed by {server['shadowedBy']}" if state == "shadowed" else label
    same = f" (same as {', '.join(server['sameAs'])})" if server["sameAs"] else ""
    return words + same


def show_server(server: "JsonObject") -> None:
    """Print one server in full."""
    facts = [("server", server["name"]), ("alias", server["alias"] if server["alias"] != server["name"] else None)]
    facts += [("type", server["type"]), ("state", describe_state(server))]
    facts += [("sandbox", server["sandbox"]["profile"] if "sandbox" in server else None)]
    facts += [("defined in", _source(source)) for source in server["sources"]]
    _facts(facts)
    output.line()
    # The next step after a setup problem is to read this very page.
    is_here = str(server.get("action")).startswith("toolcrib mcp get ")
    show_status({**server, "action": None} if is_here else server)
    output.line(f"\ndefinition: {output.pretty(server['definition'])}")
    if server["origins"]:
        output.line()
        output.table(
            ("key", "value", "from"), [(each["key"], each["value"], each["origin"]) for each in server["origins"]]
        )
    question = server["question"]
    if question is not None and not server["trusted"]:
        output.line("\nIf you trust it:")
        for line in question_lines(question):
            output.line(line)
    if server["problems"]:
        output.line("\nproblems:")
    for problem in server["problems"]:
        output.line(f"  {describe_problem(problem)}")


def question_lines(question: "JsonObject") -> "list[str]":
    """Return everything that trusting a server includes, without truncation."""
    parts: list[tuple[str, str | None]] = [
        ("server", question["name"]),
        ("defined by", question["place"]),
        ("runs", question["commandLine"]),
        ("program", question["program"]),
        ("in", question["cwd"]),
        ("contacts", question["url"]),
        ("variables", ", ".join(question["env"]) or None),
        ("headers", ", ".join(question["headers"]) or None),
        ("signs in", _auth_words(question.get("auth"))),
        ("sandbox", _sandbox_words(question.get("sandbox"))),
        *(("takes", _describe_value(taken)) for taken in question.get("resolves", ())),
    ]
    # Line breaks are escaped, so that no value can imitate a line of our own.
    lines = [f"  {name + ':':<12} {value}".replace("\n", "\\n") for name, value in parts if value]
    words = {True: "DANGER", False: "warning"}
    return [*lines, *(f"  {words[warning['grave']]}: {warning['message']}" for warning in question["warnings"])]


def _sandbox_words(sandbox: "JsonObject | None") -> str | None:
    return f"{sandbox['profile']}. {sandbox['sentence']}" if sandbox is not None else None


def _auth_words(auth: "JsonObject | None") -> str | None:
    if auth is None:
        return None
    scopes: list[str] = auth.get("scopes") or []
    parts = [f"{key} {value}" for key, value in auth.items() if key != "scopes"]
    return ", ".join([*parts, f"scopes {' '.join(scopes)}"] if scopes else parts)


def _describe_value(taken: "JsonObject") -> str:
    """Return one value that is read from this machine and passed to the server."""
    outside = ", which is outside the project" if taken.get("inside") is False else ""
    grave = " (DANGER: requires separate confirmation)" if taken["grave"] else ""
    return f"{taken['kind']} {taken['name']}, for {taken['field']}{outside}{grave}"


def show_change(change: "JsonObject") -> None:
    """Print what a dry run would change."""
    if change["changed"]:
        output.line(str(change["diff"]))
    else:
        output.note(f"{change['file']} would not change.")


def show_transfer(report: "JsonObject", verb: str) -> None:
    """Print what was transferred, and what was skipped and why."""
    change = report["change"]
    for each in report["taken"]:
        output.line(f"{verb}  {_describe_move(each)}")
        for problem in each["problems"]:
            output.line(f"    {describe_problem(problem)}")
    for each in report["skipped"]:
        output.line(f"skipped  {_describe_move(each)}: {each['reason']}")
    if change is None:
        output.note("Nothing to change.")
    elif change["dryRun"]:
        show_change(change)
    else:
        output.note(f"Changed {change['file']}. Undo with `--undo`.")


def _describe_move(each: "JsonObject") -> str:
    origin = each["from"]
    named = each["name"] if each["name"] == origin["name"] else f"{origin['name']} as {each['name']}"
    return f"{named} ({_source(origin)})"


def _rows(server: "JsonObject") -> "list[tuple[str, ...]]":
    name = server["name"] if server["name"] == server["alias"] else f"{server['name']} ({server['alias']})"
    latency = f"{server['latencyMs']:.0f}" if "latencyMs" in server else ""
    state = describe_state({**server, "sameAs": []})
    sandbox = server["sandbox"]["profile"] if "sandbox" in server else "-"
    head = (name, server["type"] or "-", state, sandbox, str(server["tools"] or ""), latency)
    places = [(source["client"], _short(_place(source))) for source in server["sources"]]
    return [(*head, *places[0]), *(("", "", "", "", "", "", *place) for place in places[1:])]


def _source(source: "JsonObject") -> str:
    return f"{source['client']}, {source['scope']}, {_place(source)}"


def _place(where: "JsonObject") -> str:
    return f"{where['file']}:{where['line']}" if where.get("line") else str(where["file"])


def _short(path: str) -> str:
    """Return a path with `~` for the user's home directory."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def _facts(facts: "Sequence[tuple[str, str | None]]") -> None:
    for name, value in facts:
        if value:
            output.line(f"{name + ':':<12} {output.one_line(value, 1000)}")
