"""Skills over MCP (SEP-2640): a skill is a directory of files with a `SKILL.md`, each file a resource with a digest.

An entry describes one skill: its URI, its front matter, and the manifest of its files. Within one server the URI of
`SKILL.md` identifies a skill. Clients of several servers see it below the server's name, so that no two skills share a
URI. Pure.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.tools import ContentItem

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILL_SCHEME: Final = "skill://"
SKILL_FILE: Final = "/SKILL.md"
MOST_FILES: Final = 512
MOST_BYTES: Final = 16 * 1024 * 1024
DYNAMIC: Final = "dynamic"
"""In place of a manifest: the content is generated, so it has no stable digests."""

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def skill_root(uri: str) -> str:
    """Return the directory of a skill, from the URI of its `SKILL.md`."""
    return uri.removesuffix(SKILL_FILE)


def skill_name(uri: str) -> str:
    """Return the name of a skill, from the URI of its `SKILL.md`."""
    return skill_root(uri).rpartition("/")[2]


def is_inside(uri: str, skill_uri: str) -> bool:
    """Return whether a resource belongs to the directory of a skill."""
    return uri.startswith(f"{skill_root(skill_uri)}/")


def manifest_of(entry: Mapping[str, Json]) -> dict[str, tuple[str, int]] | None:
    """Return digest and size of each file of a skill, or None if its content is dynamic."""
    files: Json = entry["resources"]
    return None if files == DYNAMIC else {file["uri"]: (file["digest"], file["size"]) for file in files}


def entry_fault(entry: Mapping[str, Json]) -> str | None:
    """Return what makes the entry of a skill invalid, or None."""
    uri, fields, files = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    if not isinstance(uri, str) or not uri.endswith(SKILL_FILE) or "://" not in uri:
        return "its URI does not end with /SKILL.md"
    if not is_object(fields) or not all(isinstance(fields.get(key), str) for key in ("name", "description")):
        return "its front matter has no name or description"
    if not _NAME.fullmatch(fields["name"]) or skill_name(uri) != fields["name"]:
        return "its name is invalid, or is not the last segment of its path"
    if files == DYNAMIC:
        return None
    return _manifest_fault(uri, files) if is_array(files) else "it has no manifest of its files"


def _manifest_fault(skill_uri: str, files: Iterable[Json]) -> str | None:
    seen: set[str] = set()
    total = 0
    for file in files:
        uri, digest, size = (file.get(key) for key in ("uri", "digest", "size")) if is_object(file) else (None,) * 3
        if not isinstance(uri, str) or uri in seen or not is_inside(uri, skill_uri):
            return "a file of its manifest is outside of its directory or listed twice"
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return "a file of its manifest has no SHA-256 digest"
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return "a file of its manifest has no size"
        seen.add(uri)
        total += size
    if skill_uri not in seen:
        return "its manifest does not contain its SKILL.md"
    if len(seen) > MOST_FILES or total > MOST_BYTES:
        return f"it has more than {MOST_FILES} files or {MOST_BYTES} bytes"
    return None


def content_bytes(content: Mapping[str, Json]) -> bytes | None:
    """Return the raw bytes of a resource content, or None if it has none."""
    text, blob = content.get("text"), content.get("blob")
    try:
        if isinstance(text, str):
            return text.encode()
        return base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except (UnicodeEncodeError, binascii.Error):
        return None


def sha256_digest(raw: bytes) -> str:
    """Return a digest in the format of a manifest."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


class SkillUris:
    """The URIs of skills as clients of all servers see them, with the way back to each server's own URI."""

    def __init__(self, skills: Iterable[ContentItem]) -> None:
        self._roots: dict[str, tuple[str, ContentItem]] = {}
        self._exposed: dict[tuple[str, str], str] = {}
        for item in sorted(skills, key=lambda item: (item.server, not item.key.startswith(SKILL_SCHEME), item.key)):
            own = skill_root(item.key)
            scheme, _, path = own.partition("://")
            place = path if f"{scheme}://" == SKILL_SCHEME else f"{scheme}/{path}"
            root = f"{SKILL_SCHEME}{item.server}/{place}"
            if root in self._roots:  # two schemes of one server; the first one keeps the plain URI
                root = f"{SKILL_SCHEME}{item.server}/{hashlib.sha256(own.encode()).hexdigest()[:6]}/{place}"
            self._roots[root] = own, item
            self._exposed[item.server, item.key] = root

    def exposed(self, item: ContentItem) -> JsonObject:
        """Return the entry of a skill with the URIs that clients see."""
        own, root = skill_root(item.key), self._exposed[item.server, item.key]
        entry = {**item.definition, "uri": root + SKILL_FILE}
        files: Json = entry["resources"]
        if is_array(files):
            entry["resources"] = [{**file, "uri": root + str(file["uri"]).removeprefix(own)} for file in files]
        return entry

    def find(self, uri: str) -> tuple[ContentItem, str] | None:
        """Return the skill that a URI belongs to and the server's own URI, the innermost skill first."""
        root = uri
        while "/" in root.removeprefix(SKILL_SCHEME):
            root = root.rpartition("/")[0]
            if root in self._roots:
                own, item = self._roots[root]
                return item, own + uri.removeprefix(root)
        return None
