"""The crib's own file: adding servers, and taking them over from apps."""

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


class UserHome:
    """A home with a file of Cursor and the crib's own file."""

    def __init__(self, root: Path, **servers: Any) -> None:
        self.root = root
        self.own = own_place(root / "crib")
        self.writing = WriteContext(root, root / "crib" / "backups", root / "crib")
        (root / ".cursor").mkdir()
        (root / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
        (root / "cwd").mkdir()

    def discover(self) -> Discovery:
        """Return the discovered servers."""
        return discover(
            {"SET": "1"},
            self.root / "cwd",
            home=self.root,
            crib=self.root / "crib",
            trusted=lambda _: True,
            platform="linux",
        )

    def change(self, change: Any) -> None:
        """Apply a change to the crib's own file."""
        apply_change(self.own, change, self.writing)


@pytest.mark.parametrize("name", ["", "  ", "a b", "a/b", "x" * 101, "ü", "..", "a\n"])
def test_new_name_must_be_safe(name: str) -> None:
    """At most 100 letters, digits and three signs."""
    with pytest.raises(InvalidRequest) as caught:
        check_name(name)
    assert caught.value.code == "server.name_invalid"
    check_name("Good_name-1.2")


def test_unusable_entry_is_rejected_before_it_is_written() -> None:
    """The message is documented."""
    with pytest.raises(ToolcribError, match="Invalid server config: "):
        check_entry("s", {"command": "x", "url": "https://x"})


def test_takeover_reports_what_is_taken_and_the_reasons_for_the_rest(tmp_path: Path) -> None:
    """Invalid servers, existing ones, values with another meaning here, unsupported fields."""
    user = UserHome(
        tmp_path,
        good={"command": "npx", "args": ["${env:X}"], "autoApprove": ["t"]},
        broken={"command": "x", "url": "https://x"},
        looked_up={"command": "x", "env": {"K": "SET"}},
        credential={"command": "x", "env": {"K": "UNSET_API_TOKEN", "L": "INFO"}},
        **{"odd name": {"url": "https://x"}},
    )
    user.change(add_own(user.own, "mine", {"type": "stdio", "command": "m"}))
    plan = {takeover.server.name: takeover for takeover in takeovers(user.discover(), {"SET": "1"})}
    assert plan["good"].entry == {"type": "stdio", "command": "npx", "args": ["${X}"]}
    assert ["autoApprove" in problem.message for problem in plan["good"].problems] == [True]
    assert (plan["odd name"].name, plan["odd name"].entry) == ("odd_name", {"type": "http", "url": "https://x"})
    assert all(plan[name].entry is None and plan[name].reason for name in ("broken", "looked_up", "credential", "mine"))
    for takeover in plan.values():
        if takeover.entry is not None:
            user.change(add_own(user.own, takeover.name, takeover.entry))
    assert set(json.loads(user.own.file.read_text("utf-8"))["mcpServers"]) == {"mine", "good", "odd_name"}


def test_credential_named_by_a_project_is_not_taken_over() -> None:
    """In the user's file it would be the user's own credential."""
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
