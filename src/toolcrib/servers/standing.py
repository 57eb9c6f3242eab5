"""How a server stands: its definition and what became of the link to it, as one value with one sentence.

Every state has a sentence that says what is so, and at most one thing to do next. Above: `links` makes these, REST, the
CLI and the console show them. Pure.
"""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject
from toolcrib.model.links import LinkStatus
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ServerEntry, ServerState


@dataclass(frozen=True, slots=True)
class Standing:
    """One server of the list. `link` is None where there is nothing to link to."""

    entry: ServerEntry
    link: LinkStatus | None = None

    @property
    def state(self) -> ServerState:
        """What the definition says, refined by the link where it may be used."""
        return self.link.state if self.link is not None and self.entry.startable else self.entry.state

    @property
    def sentence(self) -> str:
        """What is so."""
        if self.link is not None and self.entry.startable:
            return self.link.sentence or "It was not asked yet."
        entry = self.entry
        match self.state:
            case "invalid":
                return entry.problems[0].message if entry.problems else "Its definition cannot be used."
            case "shadowed":
                return f"Another definition of this name counts: {entry.shadowed_by}."
            case "disabled":
                return f"{own.message}." if (own := own_crib(entry)) is not None else "It is switched off."
            case "untrusted":
                return "Nobody agreed to start it yet."
            case _:
                return "It was not asked yet."

    @property
    def action(self) -> str | None:
        """The one thing to do next, as a command; None where nothing is to be done."""
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
        """The public shape of a server; absent parts are left out."""
        shape = self.entry.to_json() | {"state": self.state, "sentence": self.sentence}
        if self.action is not None:
            shape["action"] = self.action
        return shape if self.link is None else shape | _live(self.link)

    def problem(self) -> Problem:
        """That the server's tools are not there, for whoever misses them."""
        source = self.entry.source
        code = {"needs_auth": "oauth.required", "failed": "server.failed"}.get(self.state, "server.not_checked")
        hint = f"Run `{self.action}`." if self.action else None
        return Problem(code, f'Server "{self.entry.name}": {self.sentence}', hint, source.file, source.line)

    def news(self) -> JsonObject:
        """Data of the event `server_changed` when the link changed."""
        entry, tools = self.entry, self.link.tools if self.link is not None else 0
        told: JsonObject = {"name": entry.name, "alias": entry.alias, "change": "state", "state": self.state}
        return told | {"sentence": self.sentence, "tools": tools, "project": entry.source.project}


def own_crib(entry: ServerEntry) -> Problem | None:
    """That a server is this crib itself, if it is: then switching it on changes nothing."""
    return next((problem for problem in entry.problems if problem.code == "server.own_crib"), None)


def _live(link: LinkStatus) -> JsonObject:
    shape: JsonObject = {"tools": link.tools}
    known = {
        "latencyMs": link.latency_ms,
        "lastError": link.last_error,
        "exitCode": link.exited_with,
        "protocolVersion": link.version,
        "serverTitle": link.server_title,
        "pid": link.pid,
        "retryAt": link.retry_at,
    }
    shape |= {key: value for key, value in known.items() if value is not None}
    return shape | ({"stderr": list(link.stderr)} if link.stderr else {})
