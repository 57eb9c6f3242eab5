"""A problem: bad input kept as data, with the place it stands in and what to do about it.

Readers of files, loaders of modules and judges of definitions return problems beside what they could use; they never
raise for what a person wrote.
"""

from dataclasses import dataclass

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong (`code`, `message`), where (`file`, `line`) and what next (`hint`)."""

    code: str
    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape = {"code": self.code, "message": self.message, "hint": self.hint, "file": self.file, "line": self.line}
        return {key: value for key, value in shape.items() if value is not None}
