"""`toolcrib rules check --reach`: who can call which tools without being asked."""

from typing import TYPE_CHECKING

from toolcrib.cli import output
from toolcrib.cli.mcp.change import ask_crib

if TYPE_CHECKING:
    from toolcrib.cli.options import Invocation
    from toolcrib.model.json import JsonObject

_WORDS = {"allow": "runs", "may": "may run", "ask": "asks", "deny": "denied", "hidden": "hidden"}
_MOST_NAMES = 3


def show(invocation: "Invocation", pattern: str, source: str | None, mode: str | None) -> None:
    """Print what every principal can do with the tools that match a pattern."""
    found = ask_crib(invocation, lambda client: client.permissions.reach(pattern, source, mode))
    if invocation.as_json:
        output.document(found)
        return
    if not any(each["groups"] for each in found):
        output.warn_all([{"message": f"{pattern} matches no tool.", "hint": "Run `toolcrib tools list`."}])
        return
    rows = [_row(subject, group) for subject in found for group in subject["groups"]]
    output.table(("who", "access", "tools", "because"), rows)
    freely = [each["who"] for each in found if each["counts"]["allow"]]
    perhaps = [each["who"] for each in found if each["counts"]["may"] and not each["counts"]["allow"]]
    output.note(f"Without being asked: {', '.join(freely) or 'none'}.")
    if perhaps:
        output.note(f"Depending on the arguments: {', '.join(perhaps)}.")


def _row(subject: "JsonObject", group: "JsonObject") -> tuple[str, ...]:
    names = ", ".join(group["tools"][:_MOST_NAMES])
    more = group["count"] - min(_MOST_NAMES, len(group["tools"]))
    rule = f" (rule {group['rule']})" if "rule" in group else ""
    return (
        subject["who"],
        _WORDS[group["access"]],
        f"{names} and {more} more" if more else names,
        group["reason"] + rule,
    )
