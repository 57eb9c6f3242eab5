"""The two files that hold rules and limits: what each says now or, where it cannot be read, what counts instead.

A file that cannot be read as a whole goes on saying what it last said, also over a restart: its last whole text is kept
in a folder of the home. Of the owner's file, if it could never be read, nobody knows what it forbids: then nothing may
be used until it is mended. For the managed file a person is asked before every call as well, whatever it last said.

Above: `permissions` looks here now and then. Below: `reading`, `limits`, `config`. It must never let a failure to read
end in fewer restrictions than were in force.
"""

import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from toolcrib.config.files import FileText, Unreadable, create_private, read_text
from toolcrib.model.policy import Origin, Rule
from toolcrib.model.problems import Problem
from toolcrib.policy.limits import Limit, read_limits_file
from toolcrib.policy.patterns import Names
from toolcrib.policy.reading import CREATORS, FileKind, read_rules_file, stand_in

logger = logging.getLogger(__name__)

_UNTIL: Mapping[FileKind, str] = {
    "managed": "Until then a person is asked before every call.",
    "user": "It could never be read, so nothing may be used until then.",
}
_MENDED = "Mend it; what it says counts a moment later, without a restart."


@dataclass(frozen=True, slots=True)
class Content:
    """What was found at the place of a file, and when it was written."""

    text: FileText | Unreadable | None
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a file says. Of one that is not `whole`, `last` is what it said when it could last be read, if ever."""

    content: Content | None = None
    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()
    problems: tuple[Problem, ...] = ()
    whole: bool = True
    last: "Said | None" = None


class RuleFile:
    """One of the files. `kept` is where its last whole text is; `said` is what it says, as far as it was taken."""

    def __init__(self, kind: FileKind, path: Path, kept: Path) -> None:
        self.kind: FileKind = kind
        self.path = path
        self._kept = kept
        self.said = Said()
        self.before: tuple[Rule, ...] = ()
        """What it last said before this run, as far as that is known."""

    @property
    def creator(self) -> str:
        """Who writes it."""
        return CREATORS[self.kind]

    def look(self) -> Content:
        """What the file has now. When it was written is asked first: what changes meanwhile is noticed next time."""
        return _content(self.path)

    def read(self, content: Content, known: Names) -> Said:
        """What the file says with this content. What could be read as a whole is kept."""
        text = content.text
        if self.said.content is None and (last := self._last(known)) is not None:
            self.before = last.rules
        if text is None:
            self._forget()
            return Said(content)
        if isinstance(text, Unreadable):
            return self._instead(content, (text.problem,), known)
        said = read_file(content, text, self.path, self.kind, known)
        if said is None:
            problems = read_rules_file(text.text, str(self.path), self.kind, known).problems
            return self._instead(content, problems, known)
        if self.said.content != content:
            self._keep(text.text)
        return said

    def _instead(self, content: Content, problems: tuple[Problem, ...], known: Names) -> Said:
        """What counts where the file cannot be read as a whole."""
        last = self._last(known)
        until = _UNTIL[self.kind] if last is None else "What it last said stays in force."
        told = tuple(replace(each, hint=f"{until} {_MENDED}") for each in problems)
        rules = last.rules if last is not None else _never_read(self.kind, told[0])
        limits = last.limits if last is not None else ()
        return Said(content, (*rules, *stand_in(self.kind, told[0])), limits, told, whole=False, last=last)

    def _last(self, known: Names) -> Said | None:
        """What the file said when it could last be read, in this run or an earlier one, understood as of now."""
        said = self.said
        is_first_look = said.content is None
        last = said if said.whole else said.last
        content = _content(self._kept) if is_first_look else last.content if last is not None else None
        if content is not None and isinstance(content.text, FileText):
            return read_file(content, content.text, self.path, self.kind, known)
        return None if is_first_look else last  # at the last look there was no file, or never one that could be read

    def _keep(self, text: str) -> None:
        content = text.encode()
        beside = self._kept.with_name(f".{self._kept.name}.{secrets.token_hex(8)}.tmp")
        try:
            if self._kept.exists() and self._kept.read_bytes() == content:
                return
            self._kept.parent.mkdir(mode=0o700, exist_ok=True)
            create_private(beside, content)
            beside.replace(self._kept)
        except OSError as error:
            logger.warning("%s cannot be kept for the case that it breaks: %s.", self.path, error.strerror or error)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)

    def _forget(self) -> None:
        """The owner took the file away, and with it what it said."""
        with suppress(OSError):
            self._kept.unlink(missing_ok=True)


def read_file(content: Content, text: FileText, path: Path, kind: FileKind, known: Names) -> Said | None:
    """What a file says; None if it cannot be read as a whole. A single rule that is wrong is a problem beside it."""
    read = read_rules_file(text.text, str(path), kind, known, written_at=content.written_at)
    if not read.whole:
        return None
    limits = read_limits_file(text.text, str(path))
    rules = tuple(placed(rule) for rule in read.rules)
    return Said(content, rules, limits.limits, (*read.problems, *limits.problems))


def placed(rule: Rule) -> Rule:
    """The rule with the real paths of its projects, which is what askers are compared with."""
    if not rule.where.projects:
        return rule
    real = tuple(os.path.realpath(path) for path in rule.where.projects)
    return replace(rule, where=replace(rule.where, projects=real))


def _content(path: Path) -> Content:
    try:
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError):
        written_at = None
    return Content(read_text(path), written_at)


def _never_read(kind: FileKind, found: Problem) -> tuple[Rule, ...]:
    """What counts where nobody knows what the owner forbade."""
    if kind == "managed":
        return ()
    place = f"{found.file}, line {found.line}" if found.line else f"{found.file}"
    reason = f"{place} cannot be read and never could be, so nothing may be used until it is mended."
    return (Rule("user-unreadable", "deny", "*", Origin(kind, found.file, found.line), reason),)
