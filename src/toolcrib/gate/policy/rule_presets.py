"""Rule presets: sets of rules that the owner switches on and off as a whole. None is on by default.

A preset that is on is stored as ordinary rules with fixed ids, so listings, explanations, checks and simulations treat
them like any other rule.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Rule, RuleOrigin, Where


@dataclass(frozen=True, slots=True)
class RulePreset:
    """A named set of rules."""

    id: str
    name: str
    description: str
    rules: tuple[Rule, ...]

    def made(self, *, by: str, at: datetime) -> tuple[Rule, ...]:
        """Return the rules as added by a person."""
        return tuple(
            Rule(rule.id, rule.effect, rule.pattern, rule.origin, rule.reason, by, at, where=rule.where)
            for rule in self.rules
        )

    def to_json(self, *, is_on: bool) -> JsonObject:
        """Return the public shape."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "on": is_on,
            "rules": [rule.to_json() for rule in self.rules],
        }


LETHAL_TRIFECTA: Final = RulePreset(
    "lethal-trifecta",
    "Lethal trifecta",
    "After a conversation has read both untrusted text and private data, calls that send data out or destroy things "
    "need approval.",
    (
        Rule(
            "preset-lethal-trifecta",
            "ask",
            "*",
            RuleOrigin("user"),
            "The text may contain instructions of others, and the call sends data out or destroys things.",
            where=Where(marks=("untrusted", "private"), flows=("sends", "destroys")),
        ),
    ),
)
RULE_PRESETS: Final = {LETHAL_TRIFECTA.id: LETHAL_TRIFECTA}
"""In display order."""


def find_rule_preset(id: str) -> RulePreset:
    """Return a preset. Raises `NotFound` (`preset.unknown`)."""
    found = RULE_PRESETS.get(id)
    if found is None:
        raise NotFound("preset.unknown", f"Rule preset {id!r} not found.", f"Presets: {', '.join(RULE_PRESETS)}.")
    return found
