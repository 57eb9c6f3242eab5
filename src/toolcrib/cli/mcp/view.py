"""The interactive server list: what is displayed, and what each key does.

The list has every server with its state and description, as in the console; an opened server shows all details. Every
key with an effect is listed on the screen.

Pure. Must never return a row wider than the terminal, nor more rows than it has.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from toolcrib.cli.mcp.show import describe_problem, describe_state, question_lines
from toolcrib.cli.output import one_line, safe, width
from toolcrib.model.json import JsonObject
from toolcrib.model.times import duration

Do = Literal[
    "test", "test_all", "reload", "reload_all", "switch", "trust", "sign_in", "sign_out", "remove", "add", "leave",
    "interrupt",
]  # fmt: skip

_KEYS: Final[dict[str, Do]] = {
    "t": "test", "T": "test_all", "r": "reload", "R": "reload_all", "e": "switch", "x": "trust", "s": "sign_in",
    "o": "sign_out", "d": "remove", "a": "add", "q": "leave", "\x03": "interrupt", "\x04": "leave",
}  # fmt: skip
_OF_ONE: Final = frozenset({"test", "reload", "switch", "trust", "sign_in", "sign_out", "remove"})
_ENDS: Final = frozenset({"leave", "interrupt"})
_QUESTIONS: Final[dict[str, str]] = {"remove": "Remove {}?", "sign_out": "Sign out of {}?"}
"""Actions that are confirmed."""
_MOVES: Final = {
    "\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x10": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1, "\x0e": 1,
    "\x1b[5~": -10, "\x1b[6~": 10, "\x1b[H": -100_000, "\x1b[F": 100_000,
}  # fmt: skip
_OPEN: Final = frozenset({"\r", "\n", "\x1b[C", "\x1bOC", "l", " "})
_BACK: Final = frozenset({"\x1b", "\x1b[D", "\x1bOD", "h", "\x7f"})
_HELP: Final = (
    ("up/down", "choose"), ("Enter", "details"), ("t", "test"), ("r", "reload"), ("e", "on/off"), ("x", "trust"),
    ("s", "sign in"), ("o", "sign out"), ("d", "remove"), ("a", "add"), ("T", "test all"), ("R", "reload all"),
    ("q", "quit"),
)  # fmt: skip
_HELP_OPEN: Final = (("Esc", "back"), *_HELP[2:9], ("q", "quit"))
_WIDEST_NAME: Final = 28
_FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class ServersView:
    """The state of the view.

    `message` holds the result of the last action, `busy` the one in progress, `asked` the one to be confirmed.
    """

    servers: Sequence[JsonObject] = ()
    place: int = 0
    opened: JsonObject | None = None
    top: int = 0
    message: str = ""
    busy: str = ""
    asked: Do | None = None

    @property
    def chosen(self) -> JsonObject | None:
        """The selected server."""
        return self.servers[self.place] if self.servers else None

    def having(self, servers: Sequence[JsonObject]) -> "ServersView":
        """Return the view with another list, keeping the selection if it still exists."""
        alias = self.chosen["alias"] if self.chosen is not None else None
        places = [place for place, server in enumerate(servers) if server["alias"] == alias]
        place = places[0] if places else min(self.place, max(len(servers) - 1, 0))
        opened = self.opened if self.opened is not None and places else None
        asked = self.asked if places else None
        return replace(self, servers=servers, place=place, opened=opened, asked=asked)


def press(view: ServersView, key: str) -> ServersView | Do:
    """Return the effect of a key: a new view, or an action on the selected server."""
    if view.asked is not None and key != "\x03":
        return view.asked if key in ("y", "Y") else replace(view, asked=None, message="Nothing was changed.")
    if key in _MOVES:
        return _move(view, _MOVES[key])
    if view.opened is not None and (key in _BACK or key == "q"):
        return replace(view, opened=None, top=0)
    if key in _OPEN and view.opened is None and view.chosen is not None:
        return replace(view, opened=view.chosen, top=0, message="")
    wanted = _KEYS.get(key)
    if wanted is None or (wanted in _OF_ONE and view.chosen is None) or (view.busy and wanted not in _ENDS):
        return view
    return replace(view, asked=wanted) if wanted in _QUESTIONS else wanted


def _move(view: ServersView, step: int) -> ServersView:
    if view.opened is not None:
        return replace(view, top=max(view.top + step, 0))
    return replace(view, place=min(max(view.place + step, 0), max(len(view.servers) - 1, 0)), message="")


def draw(view: ServersView, columns: int, rows: int) -> list[str]:
    """Return the rows to display, within the size of the terminal."""
    head = _summary(view) if view.opened is None else f"{view.opened['name']}: {describe_state(view.opened)}"
    keys = _fold(_HELP if view.opened is None else _HELP_OPEN, columns)
    # Servers take precedence over the help; one row stays free, or the terminal would scroll.
    foot = [_question(view) or view.busy or view.message, *keys[: max(rows - _FEWEST - 4, 0)]]
    room = max(rows - len(foot) - 3, 1)
    body = _list(view, columns, room) if view.opened is None else _details(view, columns, room)
    return [clip(line, columns) for line in (head, "", *body, *foot)]


def clip(text: str, columns: int) -> str:
    """Return as much of a line as fits, with an ellipsis if truncated."""
    line = safe(text).replace("\n", " ").replace("\t", " ")
    if width(line) < columns:
        return line
    while width(line) >= columns - 1:
        line = line[:-1]
    return f"{line}…"


def _question(view: ServersView) -> str:
    if view.asked is None or view.chosen is None:
        return ""
    name = clip(str(view.chosen["name"]), _WIDEST_NAME)
    return f"{_QUESTIONS[view.asked].format(name)} Press y to confirm, any other key to cancel."


def _summary(view: ServersView) -> str:
    if not view.servers:
        return "No MCP servers. Press a to add one."
    states = Counter(describe_state({**server, "sameAs": []}).split(" by ")[0] for server in view.servers)
    summary = ", ".join(f"{number} {state}" for state, number in states.most_common())
    return f"MCP servers ({len(view.servers)}): {summary}"


def _list(view: ServersView, columns: int, room: int) -> list[str]:
    first = min(max(view.place - room // 2, 0), max(len(view.servers) - room, 0))
    shown = view.servers[first : first + room]
    names = [clip(str(server["name"]), _WIDEST_NAME) for server in shown]
    states = [describe_state({**server, "sameAs": []}) for server in shown]
    wide = max((width(name) for name in names), default=0)
    deep = max((width(state) for state in states), default=0)
    return [
        f"{'>' if first + place == view.place else ' '} {_pad(name, wide)}  {_pad(state, deep)}  "
        f"{one_line(server['sentence'], 1000)}"
        for place, (server, name, state) in enumerate(zip(shown, names, states, strict=True))
    ]


def _details(view: ServersView, columns: int, room: int) -> list[str]:
    lines = [row for line in _describe(view.opened or {}) for row in _wrap(line, columns)]
    top = min(view.top, max(len(lines) - room, 0))
    return lines[top : top + room]


def _describe(server: JsonObject) -> list[str]:
    lines = [str(server["sentence"])]
    if server.get("action"):
        lines.append(f"next: {server['action']}")
    if server.get("lastError") and str(server["lastError"]) not in lines[0]:
        lines.append(f"last error: {server['lastError']}")
    lines += [f"stderr: {line}" for line in server.get("stderr", ())[-5:]]
    latency = f", latency {duration(server['latencyMs'])}" if "latencyMs" in server else ""
    lines.append(f"{server['tools']} tools{latency}")
    lines += [f"defined in: {each['client']}, {each['scope']}, {each['file']}" for each in server["sources"]]
    if (question := server.get("question")) is not None:
        lines += ["", "If you trust it:", *question_lines(question)]
    if server["problems"]:
        lines += ["", "Problems:", *(f"  {describe_problem(problem)}" for problem in server["problems"])]
    return [row for line in lines for row in line.split("\n")]


def _wrap(line: str, columns: int) -> list[str]:
    """Return a line wrapped to rows: text that the user agrees to is never truncated."""
    margin = line[: len(line) - len(line.lstrip(" "))]
    rest, rows = one_line(line, 100_000), list[str]()
    while width(margin + rest) >= columns:
        end = columns - 1 - len(margin)
        while width(rest[:end]) >= columns - len(margin):
            end -= 1
        space = rest.rfind(" ", 1, end)
        end = space if space > 0 else max(end, 1)
        rows.append(margin + rest[:end])
        rest = rest[end:].lstrip(" ")
    return [*rows, margin + rest]


def _fold(keys: Sequence[tuple[str, str]], columns: int) -> list[str]:
    rows = [""]
    for key, does in keys:
        part = f"{key}: {does}"
        if rows[-1] and width(f"{rows[-1]}  {part}") >= columns:
            rows.append("")
        rows[-1] = f"{rows[-1]}  {part}" if rows[-1] else part
    return rows


def _pad(text: str, wide: int) -> str:
    return text + " " * (wide - width(text))
