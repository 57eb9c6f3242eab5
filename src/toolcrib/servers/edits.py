"""One change of one file: made or only tried, and told as a difference in which no secret is readable.

Above: `desk` and `transfer`. Below: `config.edit`. It must never show a line of a file whose secrets were not hidden.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import orjson

from toolcrib.config.edit.entries import ChangeText, apply_change
from toolcrib.config.edit.write import Writing, content_before, undo_change
from toolcrib.config.files import BOM, FileText, Unreadable, read_text
from toolcrib.config.masking import mask_definition, mask_text
from toolcrib.config.readers.dialect import Context
from toolcrib.config.readers.read import PARSERS, Place, ReadEntry, family_of, read_content
from toolcrib.config.syntax.document import SyntaxProblem
from toolcrib.config.values import as_list, as_object
from toolcrib.errors import ConfigError
from toolcrib.model.json import Json, JsonObject

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_BEFORE, _AFTER = r"(?<![^\s\"'=:\[{,])", r"(?![^\s\"',\]}])"


@dataclass(frozen=True, slots=True)
class Edit:
    """What happened, or with `dry_run` would happen, to a file. The difference has its secrets masked."""

    file: str
    changed: bool
    diff: str
    dry_run: bool = False

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        return {"file": self.file, "changed": self.changed, "diff": self.diff, "dryRun": self.dry_run}


def together(changes: Iterator[ChangeText]) -> ChangeText:
    """Several changes of one text as one."""
    listed = tuple(changes)
    return lambda text: reduce(lambda changed, change: change(changed), listed, text)


def edit(place: Place, change: ChangeText, writing: Writing, *, dry_run: bool, expected: str | None = None) -> Edit:
    """Make a change, or only see what it would do. `expected` is the version of the file that was decided on."""
    seen: list[tuple[str, str]] = []

    def watched(text: str) -> str:
        changed = change(text)
        seen.append((text, changed))
        return changed

    if dry_run:
        watched(_text(place.file))
        file = place.file
    else:
        file = apply_change(place, watched, writing, expected).file
    before, after = seen[-1]
    return Edit(str(file), before != after, masked_diff(place, file, before, after), dry_run)


def undo(file: Path, writing: Writing, *, dry_run: bool = False) -> Edit:
    """Take the last change of a file back. Raises `config.nothing_to_undo`, `config.changed`."""
    before = _text(file)
    if dry_run:
        done, after = file, (content_before(file, writing) or b"").decode("utf-8", "replace").removeprefix(BOM)
    else:
        done = undo_change(file, writing).file
        after = _text(done)
    # Any client with files of that syntax will do: only what is shown depends on it.
    place = Place({".toml": "codex", ".yaml": "goose", ".yml": "goose"}.get(done.suffix, "toolcrib"), "user", done)
    return Edit(str(done), True, masked_diff(place, done, before, after), dry_run)


def entries_before(place: Place, writing: Writing) -> tuple[ReadEntry, ...]:
    """The entries of a file as `undo` would leave it. Raises as that does."""
    text = (content_before(place.file, writing) or b"").decode("utf-8", "replace")
    content = FileText(text.removeprefix(BOM), text.startswith(BOM), "")
    return tuple(
        read for read in read_content(place, content, Context(place.file)).entries if read.place.scope == place.scope
    )


def masked_diff(place: Place, file: Path, before: str, after: str) -> str:
    """The changed lines alone, as a unified difference; what lies between them could hold anything."""
    secrets = (_secrets(place, before), _secrets(place, after))
    if secrets[0] is None or secrets[1] is None:
        return f"{file}: what changed is not shown, since its secrets cannot be told from the rest."
    hidden = _Hidden({**secrets[0], **secrets[1]})
    old, new = before.splitlines(), after.splitlines()
    names = (str(file) if before else "/dev/null", str(file) if after else "/dev/null")
    return "\n".join(hidden.masked(line) for line in difflib.unified_diff(old, new, *names, lineterm="", n=0))


class _Hidden:
    """Hides known secrets in lines of text, however they are quoted there."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        parts = {line.strip(): shown for raw, shown in secrets.items() for line in raw.splitlines()}
        longest_first = sorted((part for part in parts if part), key=len, reverse=True)
        self._parts = parts
        self._pattern = (
            re.compile(f"{_BEFORE}(?:{'|'.join(re.escape(part) for part in longest_first)}){_AFTER}")
            if longest_first
            else None
        )

    def masked(self, line: str) -> str:
        line = _QUOTED.sub(self._quoted, line)
        return self._pattern.sub(lambda found: self._parts[found[0]], line) if self._pattern else line

    def _quoted(self, found: re.Match[str]) -> str:
        text = _loaded(found[0].encode("utf-8", "replace"))
        if not isinstance(text, str):
            return found[0]
        shown = self._secrets.get(text) or mask_text(text)
        return found[0] if shown == text else json.dumps(shown, ensure_ascii=False)


def _secrets(place: Place, text: str) -> dict[str, str] | None:
    """Every text of a document that is not to be seen, with what is shown instead; None if it cannot be read."""
    try:
        document = as_object(PARSERS[family_of(place)](text).value) if text.strip() else None
    except SyntaxProblem:
        return None
    return dict(_differences(document, mask_definition(document))) if document is not None else {}


def _differences(raw: Json, shown: Json) -> Iterator[tuple[str, str]]:
    held, listed = as_object(raw), as_list(raw)
    if held is not None:
        for key, value in held.items():
            yield from _differences(value, shown[key])
    elif listed is not None:
        for value, each in zip(listed, shown, strict=True):
            yield from _differences(value, each)
    elif raw != shown:
        yield str(raw), str(shown)


def _text(file: Path) -> str:
    content = read_text(file)
    if isinstance(content, Unreadable):
        raise ConfigError(content.problem.code, content.problem.message)
    return content.text.removeprefix(BOM) if isinstance(content, FileText) else ""


def _loaded(text: bytes) -> Json:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
