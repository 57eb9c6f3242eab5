"""The status of a server: its definition and its connection, as one value with one sentence.

Every state has a sentence that describes it and at most one next step.
"""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject
from toolcrib.model.look_alikes import looks_foreign
from toolcrib.model.problems import Problem
from toolcrib.model.servers import STATE_LABELS, ServerEntry, ServerState, UpstreamStatus
from toolcrib.model.text import visible


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server of the list. `link` is None if it cannot be connected; `twins` are names that look like its own."""

    entry: ServerEntry
    link: UpstreamStatus | None = None
    twins: tuple[str, ...] = ()

    @property
    def state(self) -> ServerState:
        """The state of the definition, or of the connection if the server is startable."""
        return self.link.state if self.link is not None and self.entry.startable else self.entry.state

    @property
    def label(self) -> str:
        """The state in one or two words. A failure is a setup problem, or a server that can't be reached."""
        if self.state == "failed" and self.link is not None and self.link.is_setup:
            return "Setup problem"
        return STATE_LABELS[self.state]

    @property
    def sentence(self) -> str:
        """A description of the state."""
        if self.link is not None and self.entry.startable:
            return self.link.sentence or "Not connected yet."
        entry = self.entry
        match self.state:
            case "invalid":
                return entry.problems[0].message if entry.problems else "The definition is invalid."
            case "shadowed":
                return f"Shadowed by {entry.shadowed_by}, which has the same name."
            case "disabled":
                return f"{own.message}." if (own := own_crib(entry)) is not None else "Disabled."
            case "untrusted":
                return "Not trusted yet."
            case _:
                return "Not connected yet."

    @property
    def action(self) -> str | None:
        """The next step as a command; None if there is none."""
        if self.link is not None and self.entry.startable:
            return self.link.action
        alias = self.entry.alias
        match self.state:
            case "disabled":
                return f"toolcrib mcp {'enable' if own_crib(self.entry) is None else 'get'} {alias}"
            case "untrusted":
                return f"toolcrib mcp trust {alias}"
            case "invalid" | "shadowed":
                return f"toolcrib mcp get {alias}"
            case _:
                return f"toolcrib mcp test {alias}"

    def to_json(self) -> JsonObject:
        """Return the public shape of a server without absent fields."""
        shape = self.entry.to_json() | {"state": self.state, "label": self.label, "sentence": self.sentence}
        if (alike := self.look_alike()) is not None:
            shape["problems"] = [*shape["problems"], alike.to_json()]
        if self.action is not None:
            shape["action"] = self.action
        if self.link is None:
            return shape
        if self.link.problems:
            shape["problems"] = [*shape["problems"], *(problem.to_json() for problem in self.link.problems)]
        observed: JsonObject = {"learned": self.link.learned} if self.link.learned is not None else {}
        if self.link.refused:
            observed["refused"] = [each.to_json() for each in self.link.refused]
        if observed:
            shape |= {"sandbox": {**self.entry.sandbox.to_json(), **observed}}
        return shape | _live(self.link)

    def look_alike(self) -> Problem | None:
        """Return a problem if the name can be mistaken for another server's."""
        name = visible(self.entry.name)
        if self.twins:
            others = ", ".join(f'"{visible(twin)}"' for twin in self.twins[:3])
            return Problem("server.look_alike", f'The name "{name}" looks like {others}.')
        if name != self.entry.name or looks_foreign(self.entry.name):
            return Problem(
                "server.look_alike", f'The name "{name}" has characters that are hidden or look like others.'
            )
        return None

    def problem(self) -> Problem:
        """Return a problem that explains why the server's tools are missing."""
        source = self.entry.source
        code = {"needs_auth": "oauth.required", "failed": "server.failed"}.get(self.state, "server.not_checked")
        hint = f"Run `{self.action}`." if self.action else None
        return Problem(code, f'Server "{self.entry.name}": {self.sentence}', hint, source.file, source.line)

    def news(self) -> JsonObject:
        """Return the data of the event `server_changed` for a change of the connection."""
        entry, tools = self.entry, self.link.tools if self.link is not None else 0
        data: JsonObject = {"name": entry.name, "alias": entry.alias, "change": "state", "state": self.state}
        return data | {"sentence": self.sentence, "tools": tools, "project": entry.source.project}


def own_crib(entry: ServerEntry) -> Problem | None:
    """Return the problem that a server is this crib itself, if it is; enabling it then has no effect."""
    return next((problem for problem in entry.problems if problem.code == "server.own_crib"), None)


def _live(link: UpstreamStatus) -> JsonObject:
    shape: JsonObject = {"tools": link.tools}
    known = {
        "latencyMs": link.latency_ms,
        "lastError": link.last_error,
        "lastErrorCode": link.error_code,
        "exitCode": link.exited_with,
        "protocolVersion": link.version,
        "serverTitle": link.server_title,
        "pid": link.pid,
        "retryAt": link.retry_at,
    }
    shape |= {key: value for key, value in known.items() if value is not None}
    return shape | ({"stderr": list(link.stderr)} if link.stderr else {})
