"""Makes or previews one change of a file and renders it as a diff with masked secrets.

Must never show a line of a file whose secrets are not masked.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import orjson

from toolcrib.base.files.reading import BOM, FileText, Unreadable, read_text
from toolcrib.base.files.write import WriteContext, content_before, undo_change
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject, as_list, as_object
from toolcrib.servers.edit.entries import ChangeText, apply_change
from toolcrib.servers.masking import mask_definition, mask_text
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.read import PARSERS, ConfigFile, ReadEntry, family_of, read_content
from toolcrib.servers.syntax.document import SyntaxProblem

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_BEFORE, _AFTER = r"(?<![^\s\"'=:\[{,])", r"(?![^\s\"',\]}])"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file or, with `dry_run`, a preview. Secrets in the diff are masked."""

    file: str
    changed: bool
    diff: str
    dry_run: bool = False

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {"file": self.file, "changed": self.changed, "diff": self.diff, "dryRun": self.dry_run}


def together(changes: Iterator[ChangeText]) -> ChangeText:
    """Combine several changes of one text."""
    listed = tuple(changes)
    return lambda text: reduce(lambda changed, change: change(changed), listed, text)


def edit(
    place: ConfigFile, change: ChangeText, writing: WriteContext, *, dry_run: bool, expected: str | None = None
) -> Edit:
    """Apply a change or preview it. `expected` is the version of the file that the caller reviewed."""
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


def undo(file: Path, writing: WriteContext, *, dry_run: bool = False) -> Edit:
    """Undo the last change of a file. Raises `config.nothing_to_undo`, `config.changed`."""
    before = _text(file)
    if dry_run:
        done, after = file, (content_before(file, writing) or b"").decode("utf-8", "replace").removeprefix(BOM)
    else:
        done = undo_change(file, writing).file
        after = _text(done)
    # Any app with files of that syntax will do: it only affects the rendering.
    place = ConfigFile({".toml": "codex", ".yaml": "goose", ".yml": "goose"}.get(done.suffix, "toolcrib"), "user", done)
    return Edit(str(done), True, masked_diff(place, done, before, after), dry_run)


def entries_before(place: ConfigFile, writing: WriteContext) -> tuple[ReadEntry, ...]:
    """Return the entries of a file as `undo` would leave it. Raises like `undo`."""
    text = (content_before(place.file, writing) or b"").decode("utf-8", "replace")
    content = FileText(text.removeprefix(BOM), text.startswith(BOM), "")
    return tuple(
        read
        for read in read_content(place, content, ReadingContext(place.file)).entries
        if read.place.scope == place.scope
    )


def masked_diff(place: ConfigFile, file: Path, before: str, after: str) -> str:
    """Return a unified diff without context lines, which could contain anything."""
    secrets = (_secrets(place, before), _secrets(place, after))
    if secrets[0] is None or secrets[1] is None:
        return f"{file}: what changed is not shown, since its secrets cannot be told from the rest."
    hidden = _Hidden({**secrets[0], **secrets[1]})
    old, new = before.splitlines(), after.splitlines()
    names = (str(file) if before else "/dev/null", str(file) if after else "/dev/null")
    return "\n".join(hidden.masked(line) for line in difflib.unified_diff(old, new, *names, lineterm="", n=0))


class _Hidden:
    """Masks known secrets in lines of text, however they are quoted."""

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
        line = _QUOTED.sub(self._mask_quoted, line)
        return self._pattern.sub(lambda found: self._parts[found[0]], line) if self._pattern else line

    def _mask_quoted(self, found: re.Match[str]) -> str:
        text = _parse_json(found[0].encode("utf-8", "replace"))
        if not isinstance(text, str):
            return found[0]
        shown = self._secrets.get(text) or mask_text(text)
        return found[0] if shown == text else json.dumps(shown, ensure_ascii=False)


def _secrets(place: ConfigFile, text: str) -> dict[str, str] | None:
    """Return every secret text of a document with its masked form; None if the document cannot be parsed."""
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


def _parse_json(text: bytes) -> Json:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
