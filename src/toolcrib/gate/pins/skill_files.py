"""The files of an upstream server's skills, verified against the accepted manifests.

A file that a manifest lists is passed on only if its size and digest match. Other files in the directory of a skill,
and the files of a skill that is held back, are refused. The front matter of a `SKILL.md` must be the one of its entry,
because that is what a person accepted.
"""

import re
from collections.abc import Sequence

from toolcrib.model.errors import Denied
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.skills import content_bytes, is_inside, manifest_of, sha256_digest
from toolcrib.model.text import visible
from toolcrib.model.tools import ContentItem, ToolRef
from toolcrib.servers.syntax.document import SyntaxProblem
from toolcrib.servers.syntax.yaml import parse

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def held_back(ref: ToolRef) -> Denied:
    """Return the error for a tool or other item that is held back."""
    message = f"{visible(str(ref))} is held back (tool.changed): its definition is not accepted yet."
    hint = f"Look at it with `toolcrib tools changes`, then run `toolcrib tools accept {visible(str(ref))}`."
    return Denied("tool.changed", message, hint)


class SkillFiles:
    """The files of one server's skills. `withheld` has the URIs of the skills that are held back."""

    def __init__(self, server: str, skills: Sequence[ContentItem], withheld: Sequence[str]) -> None:
        self._server = server
        self._skills = {skill.key: skill for skill in skills}
        self._withheld = tuple(withheld)
        self._listed: dict[str, tuple[str, int]] = {}
        self._closed: list[str] = []
        for skill in skills:
            manifest = manifest_of(skill.definition)
            if manifest is not None:
                self._listed |= manifest
                self._closed.append(skill.key)

    def check_read(self, uri: Json) -> None:
        """Raise `Denied` for a file of a skill that is held back, or one that no accepted manifest lists."""
        if not isinstance(uri, str) or uri in self._listed or uri in self._skills:
            return
        for skill in self._withheld:
            if is_inside(uri, skill):
                raise held_back(ToolRef(self._server, skill))
        if any(is_inside(uri, skill) for skill in self._closed):
            raise self._mismatch(uri, "is not in the manifest of its skill")

    def verify(self, uri: Json, result: JsonObject) -> None:
        """Raise `Denied` unless a file of a skill has the content that was accepted."""
        if not isinstance(uri, str) or not (uri in self._listed or uri in self._skills):
            return
        contents: Json = result.get("contents")
        own = [one for one in contents if is_object(one) and one.get("uri") == uri] if is_array(contents) else []
        raw = content_bytes(own[0]) if len(own) == 1 else None
        if raw is None:
            raise self._mismatch(uri, "has no readable content")
        if uri in self._listed:
            digest, size = self._listed[uri]
            if (len(raw), sha256_digest(raw)) != (size, digest):
                raise self._mismatch(uri, "does not match the digest of its entry")
        if uri in self._skills and not _has_fields(raw, self._skills[uri].definition["frontmatter"]):
            raise self._mismatch(uri, "has another front matter than its entry")

    def _mismatch(self, uri: str, why: str) -> Denied:
        message = f"{visible(uri)} of server {self._server!r} {why}, so it was not passed on."
        return Denied("tool.changed", message, f"Run `toolcrib mcp reload {self._server}`, then review the change.")


def _has_fields(raw: bytes, fields: JsonObject) -> bool:
    found = _FRONT_MATTER.match(raw.decode(errors="replace"))
    if found is None:
        return False
    try:
        return _plain(parse(found[1]).value) == _plain(fields)
    except SyntaxProblem:
        return False


def _plain(value: Json) -> Json:
    """Return a value with its scalars as text: dialects of YAML disagree on the types of dates and numbers."""
    if is_object(value):
        return {key: _plain(each) for key, each in value.items()}
    if is_array(value):
        return [_plain(each) for each in value]
    return str(value).strip().casefold()
