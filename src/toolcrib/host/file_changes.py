"""Audit records for an edited rules or settings file: one each for changed rules, limits, flows and settings."""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict

from toolcrib.base.files.reading import FileText
from toolcrib.base.settings import SETTINGS
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.policy.rule_files import RuleFile, RuleFileState
from toolcrib.model import toml
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.servers.masking import mask_definition

_KEPT_WRITES = 8
_ELSEWHERE = frozenset({"rules", "limits", "flows"})
"""Tables that have their own records."""


class FileChangeRecorder:
    """Records edits of the rules and settings files, except those that a tool made and recorded itself."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._written: deque[str] = deque(maxlen=_KEPT_WRITES)

    def expect(self, text: str) -> None:
        """Skip the settings of a file that now has this text: their change is on record already."""
        self._written.append(text)

    def record(self, file: RuleFile, before: RuleFileState, now: RuleFileState) -> None:
        """Record what changed in a file."""
        editor = Principal("owner", file.creator, "cli")  # the file was edited by hand
        text = now.content.text if now.content is not None else None
        is_expected = isinstance(text, FileText) and text.text in self._written
        for kind, changed in changes_of(file, before, now):
            if not (is_expected and kind == "settings.file"):
                self._changes.noticed(kind, changed, by=editor)


def changes_of(file: RuleFile, before: RuleFileState, now: RuleFileState) -> Iterator[tuple[str, JsonObject]]:
    """Yield the kind and content of each record."""
    where: JsonObject = {"file": str(file.path)}
    old, new = {rule.id for rule in before.rules}, {rule.id for rule in now.rules}
    if old != new:
        added: list[Json] = [rule.to_json() for rule in now.rules if rule.id not in old]
        removed: list[Json] = [rule.to_json() for rule in before.rules if rule.id not in new]
        yield "rules.file", {**where, "added": added, "removed": removed}
    if before.limits != now.limits:
        limits: JsonObject = {name: [asdict(each) for each in state.limits] for name, state in _both(before, now)}
        yield "limits.file", {**where, **limits}
    if before.flows != now.flows:
        flows: JsonObject = {name: [each.to_json() for each in state.flows] for name, state in _both(before, now)}
        yield "flows.file", {**where, **flows}
    settings = _settings(before, now)
    if settings:
        yield "settings.file", {**where, **settings}


def _both(before: RuleFileState, now: RuleFileState) -> tuple[tuple[str, RuleFileState], tuple[str, RuleFileState]]:
    return ("before", before), ("after", now)


def _settings(before: RuleFileState, now: RuleFileState) -> JsonObject:
    """Return the changed settings, masked; empty if there are none or a version of the file is invalid."""
    old, new = _document(before), _document(now)
    if old is None or new is None:
        return {}
    names = sorted(name for name in {*old, *new} - _ELSEWHERE if old.get(name) != new.get(name))
    if not names:
        return {}
    return {
        side: {name: _mask_value(name, document[name]) for name in names if name in document}
        for side, document in (("before", old), ("after", new))
    }


def _document(state: RuleFileState) -> JsonObject | None:
    text = state.content.text if state.content is not None else None
    if text is None:
        return {}
    if not isinstance(text, FileText):
        return None
    try:
        return toml.loads(text.text)
    except ValueError:
        return None


def _mask_value(name: str, value: Json) -> Json:
    """Return a value without its secrets. Settings mask their own, tables are masked like server definitions."""
    setting = next((each for each in SETTINGS if each.name == name), None)
    if setting is not None:
        return setting.show(value)
    return mask_definition(value) if is_object(value) else value
