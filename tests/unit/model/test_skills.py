"""Validation of skill entries by the rules of SEP-2640."""

import hashlib
from typing import Any

import pytest

from toolcrib.gate.pins.skill_files import SkillFiles
from toolcrib.model.errors import Denied
from toolcrib.model.json import JsonObject
from toolcrib.model.skills import entry_fault, sha256_digest
from toolcrib.model.tools import ContentItem

URI = "skill://acme/refunds/SKILL.md"
DIGEST = "sha256:" + "0" * 64
FIELDS: JsonObject = {"name": "refunds", "description": "How to refund."}


def file(uri: str = URI, **changed: Any) -> JsonObject:
    return {"uri": uri, "digest": DIGEST, "size": 1, **changed}


def entry(**changed: Any) -> JsonObject:
    return {"uri": URI, "frontmatter": FIELDS, "resources": [file()], **changed}


@pytest.mark.parametrize(
    "resources",
    [
        "dynamic",
        [file()],
        [file(), *(file(f"skill://acme/refunds/{number}.md", size=0) for number in range(511))],
        [file(size=16 * 1024 * 1024)],
        [file(), file("skill://acme/refunds/nested/SKILL.md")],
    ],
)
def test_entry_at_the_limits_is_accepted(resources: Any) -> None:
    assert entry_fault(entry(resources=resources)) is None


@pytest.mark.parametrize(
    "broken",
    [
        entry(uri="skill://acme/other/SKILL.md"),
        entry(uri="skill://acme/refunds/skill.md"),
        entry(uri="acme/refunds/SKILL.md"),
        entry(frontmatter={"name": "refunds"}),
        entry(frontmatter={**FIELDS, "name": "Refunds"}),
        entry(frontmatter=None),
        entry(resources=None),
        entry(resources="static"),
        entry(resources=[]),
        entry(resources=[file("skill://acme/refunds/other.md")]),
        entry(resources=[file(), file()]),
        entry(resources=[file(), file("skill://acme/elsewhere.md")]),
        entry(resources=[file(), file("skill://acme/refunds-eu/SKILL.md")]),
        entry(resources=[file(digest=DIGEST.upper())]),
        entry(resources=[file(digest="sha256:0")]),
        entry(resources=[file(size=-1)]),
        entry(resources=[file(size=True)]),
        entry(resources=[{"uri": URI, "digest": DIGEST}]),
        entry(resources=[file(size=16 * 1024 * 1024 + 1)]),
        entry(resources=[file(), *(file(f"skill://acme/refunds/{number}.md") for number in range(512))]),
    ],
)
def test_entry_that_breaks_a_rule_is_rejected(broken: JsonObject) -> None:
    assert entry_fault(broken) is not None


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    ("head", "is_equal"),
    [
        ("name: refunds\ndescription: How to refund.\n", True),
        ("description: How to refund.\nname: refunds\n", True),
        ("name: refunds\ndescription: How to refund.\nallowed-tools: Bash\n", False),
        ("name: refunds\ndescription: Otherwise.\n", False),
        ("name: refunds\n", False),
        ("name: [\n", False),
    ],
)
def test_front_matter_that_differs_from_the_entry_is_rejected(head: str, is_equal: bool, is_dynamic: bool) -> None:
    raw = f"---\n{head}---\nText.\n".encode()
    assert sha256_digest(raw) == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    listed = "dynamic" if is_dynamic else [file(digest=sha256_digest(raw), size=len(raw))]
    files = SkillFiles("acme", [ContentItem("acme", URI, entry(resources=listed))], ())
    result: JsonObject = {"contents": [{"uri": URI, "text": raw.decode()}]}
    if is_equal:
        files.verify(URI, result)
    else:
        with pytest.raises(Denied):
            files.verify(URI, result)
