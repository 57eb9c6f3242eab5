"""Our own file: adding, taking over."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.base.files.write import WriteContext
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.servers import Auth, DefinitionSource, Discovery, ServerEntry, ServerSpec
from toolcrib.servers.discover import discover
from toolcrib.servers.edit.entries import apply_change
from toolcrib.servers.own_file import add_own, check_entry, check_name, own_place, takeovers


class Person:
    """A home with a file of Cursor and our own."""

    def __init__(self, root: Path, **servers: Any) -> None:
        self.root = root
        self.own = own_place(root / "crib")
        self.writing = WriteContext(root, root / "crib" / "backups", root / "crib")
        (root / ".cursor").mkdir()
        (root / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
        (root / "cwd").mkdir()

    def discover(self) -> Discovery:
        """The list."""
        return discover(
            {"SET": "1"},
            self.root / "cwd",
            home=self.root,
            crib=self.root / "crib",
            trusted=lambda _: True,
            platform="linux",
        )

    def change(self, change: Any) -> None:
        """Write it to our file."""
        apply_change(self.own, change, self.writing)


@pytest.mark.parametrize("name", ["", "  ", "a b", "a/b", "x" * 101, "ü", "..", "a\n"])
def test_names_given_here_are_safe(name: str) -> None:
    """Non-empty, at most 100, letters, digits and three signs."""
    with pytest.raises(InvalidRequest) as caught:
        check_name(name)
    assert caught.value.code == "server.name_invalid"
    check_name("Good_name-1.2")


def test_an_entry_that_cannot_be_used_is_refused_before_it_is_written() -> None:
    """With the message people may search for."""
    with pytest.raises(ToolcribError, match="Invalid server config: "):
        check_entry("s", {"command": "x", "url": "https://x"})


def test_taking_over_reports_what_is_taken_and_what_is_not_and_why(tmp_path: Path) -> None:
    """Unusable ones, our own, values that would change their meaning here, fields without a place."""
    person = Person(
        tmp_path,
        good={"command": "npx", "args": ["${env:X}"], "autoApprove": ["t"]},
        broken={"command": "x", "url": "https://x"},
        looked_up={"command": "x", "env": {"K": "SET"}},
        credential={"command": "x", "env": {"K": "UNSET_API_TOKEN", "L": "INFO"}},
        **{"odd name": {"url": "https://x"}},
    )
    person.change(add_own(person.own, "mine", {"type": "stdio", "command": "m"}))
    plan = {takeover.server.name: takeover for takeover in takeovers(person.discover(), {"SET": "1"})}
    assert plan["good"].entry == {"type": "stdio", "command": "npx", "args": ["${X}"]}
    assert ["autoApprove" in problem.message for problem in plan["good"].problems] == [True]
    assert (plan["odd name"].name, plan["odd name"].entry) == ("odd_name", {"type": "http", "url": "https://x"})
    assert all(plan[name].entry is None and plan[name].reason for name in ("broken", "looked_up", "credential", "mine"))
    for takeover in plan.values():
        if takeover.entry is not None:
            person.change(add_own(person.own, takeover.name, takeover.entry))
    assert set(json.loads(person.own.file.read_text("utf-8"))["mcpServers"]) == {"mine", "good", "odd_name"}


def test_a_credential_that_a_project_names_is_not_taken_over() -> None:
    """In the person's file it would be one of theirs."""
    place = DefinitionSource("claude-code", "project", "/r/.mcp.json", 1, "/r", "/r")
    spec = ServerSpec("x", "http", place, url="https://x.example", auth=Auth(credential_id="github", client_id="c"))
    for source, auth in (
        (place, {"type": "oauth", "clientId": "c"}),
        (
            DefinitionSource("cursor", "user", "/h/mcp.json"),
            {"type": "oauth", "credentialId": "github", "clientId": "c"},
        ),
    ):
        server = ServerEntry("x", "x", source, {}, replace(spec, source=source), trusted=True)
        (taken,) = takeovers(Discovery((server,)), {})
        assert taken.entry is not None
        assert taken.entry["auth"] == auth
