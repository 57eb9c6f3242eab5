"""A problem: invalid input as data, with its location and the next step.

Readers, loaders and validators return problems in addition to usable results. They never raise for user input.
"""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong (`code`, `message`), where (`file`, `line`), and the next step (`hint`)."""

    code: str
    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape = {"code": self.code, "message": self.message, "hint": self.hint, "file": self.file, "line": self.line}
        return {key: value for key, value in shape.items() if value is not None}
