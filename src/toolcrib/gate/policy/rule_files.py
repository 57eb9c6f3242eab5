"""The two files with rules, limits and flows: their current content or, if unreadable, a safe substitute.

An unreadable file keeps its last readable content in force, also across restarts: that text is stored in a folder of
the home. If the owner's file was never readable, its denials are unknown, so nothing may be used until it is repaired.
For an unreadable managed file every call needs an approval in addition.

Must never let a read failure end in fewer restrictions than were in force.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from toolcrib.base.files.private import replace_private
from toolcrib.base.files.reading import FileText, Unreadable, read_text
from toolcrib.gate.policy.flows import FlowEntry, read_flows_file
from toolcrib.gate.policy.limits import Limit, read_limits_file
from toolcrib.gate.policy.patterns import Names
from toolcrib.gate.policy.rule_parser import CREATORS, FileKind, read_rules_file, stand_in
from toolcrib.model.policy import Rule, RuleOrigin
from toolcrib.model.problems import Problem

logger = logging.getLogger(__name__)

_UNTIL: Mapping[FileKind, str] = {
    "managed": "Until then a person is asked before every call.",
    "user": "It has never been readable, so no tool may be used until then.",
}
_FIX_HINT = "Fix the file. It is read again within seconds, without a restart."


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file, and its modification time."""

    text: FileText | Unreadable | None
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RuleFileState:
    """The parsed state of a file. If it is not `whole`, `last` is its last readable state, if any."""

    content: Content | None = None
    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()
    flows: tuple[FlowEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    whole: bool = True
    last: "RuleFileState | None" = None


class RuleFile:
    """One of the files. `copy` stores its last readable text, and `parsed` is the state in force."""

    def __init__(self, kind: FileKind, path: Path, copy: Path) -> None:
        self.kind: FileKind = kind
        self.path = path
        self._copy = copy
        self.state = RuleFileState()
        self.before = RuleFileState()
        """Its last state before this run, if known."""

    @property
    def creator(self) -> str:
        """The author of the file."""
        return CREATORS[self.kind]

    def look(self) -> Content:
        """Read the file. The modification time is read first, so that a concurrent change is noticed next time."""
        return _content(self.path)

    def read(self, content: Content, known: Names) -> RuleFileState:
        """Parse the file's content, and store it if it is readable as a whole."""
        text = content.text
        if self.state.content is None and (last := self._last(known)) is not None:
            self.before = last
        if text is None:
            self._remove_copy()
            return RuleFileState(content)
        if isinstance(text, Unreadable):
            return self._substitute(content, (text.problem,), known)
        if not text.text and (last := self._last(known)) is not None and (last.rules or last.limits or last.flows):
            return self._substitute(content, (_emptied_problem(self.path),), known)
        parsed = read_file(content, text, self.path, self.kind, known)
        if parsed is None:
            problems = read_rules_file(text.text, str(self.path), self.kind, known).problems
            return self._substitute(content, problems, known)
        if self.state.content != content:
            self._store_copy(text.text)
        return parsed

    def _substitute(self, content: Content, problems: tuple[Problem, ...], known: Names) -> RuleFileState:
        """Return the substitute for a file that cannot be read as a whole."""
        last = self._last(known)
        until = _UNTIL[self.kind] if last is None else "Its last readable content stays in force."
        explained = tuple(replace(each, hint=f"{until} {_FIX_HINT}") for each in problems)
        rules = last.rules if last is not None else _unreadable_rules(self.kind, explained[0])
        limits = last.limits if last is not None else ()
        flows = last.flows if last is not None else ()
        return RuleFileState(
            content, (*rules, *stand_in(self.kind, explained[0])), limits, flows, explained, whole=False, last=last
        )

    def _last(self, known: Names) -> RuleFileState | None:
        """Return the last readable state of the file, from this run or an earlier one, parsed with current names."""
        parsed = self.state
        is_first_look = parsed.content is None
        last = parsed if parsed.whole else parsed.last
        content = _content(self._copy) if is_first_look else last.content if last is not None else None
        if content is not None and isinstance(content.text, FileText):
            return read_file(content, content.text, self.path, self.kind, known)
        return None if is_first_look else last  # no file at the last check, or never a readable one

    def _store_copy(self, text: str) -> None:
        content = text.encode()
        try:
            if not self._copy.exists() or self._copy.read_bytes() != content:
                replace_private(self._copy, content)
        except OSError as error:
            logger.warning("Could not store a copy of %s: %s.", self.path, error.strerror or error)

    def _remove_copy(self) -> None:
        """Drop the stored text after the owner removed the file."""
        with suppress(OSError):
            self._copy.unlink(missing_ok=True)


def read_file(content: Content, text: FileText, path: Path, kind: FileKind, known: Names) -> RuleFileState | None:
    """Parse a file. Returns None if it is unreadable as a whole; a single faulty rule is only a problem."""
    read = read_rules_file(text.text, str(path), kind, known, written_at=content.written_at)
    if not read.whole:
        return None
    limits = read_limits_file(text.text, str(path))
    rules = tuple(with_real_projects(rule) for rule in read.rules)
    flows = read_flows_file(text.text, str(path))
    problems = (*read.problems, *limits.problems, *flows.problems)
    return RuleFileState(content, rules, limits.limits, flows.entries, problems)


def _emptied_problem(path: Path) -> Problem:
    """Return the problem for a file with rules that is empty now, as after an interrupted write."""
    return Problem("config.empty", f"{path.name}: the file was emptied", file=str(path))


def with_real_projects(rule: Rule) -> Rule:
    """Return the rule with the real paths of its projects, for comparison with principals."""
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


def _unreadable_rules(kind: FileKind, found: Problem) -> tuple[Rule, ...]:
    """Return the substitute rules for an owner's file that was never readable."""
    if kind == "managed":
        return ()
    place = f"{found.file}, line {found.line}" if found.line else f"{found.file}"
    reason = f"{place} has never been readable, so no tool may be used until it is fixed."
    return (Rule("user-unreadable", "deny", "*", RuleOrigin(kind, found.file, found.line), reason),)
