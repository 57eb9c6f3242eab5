"""The screen of secrets: preview, move and exact undo."""

from pathlib import Path

import pytest

from integration.web.console.console_client import open_console

pytestmark = pytest.mark.anyio

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"
FILE = f'{{"mcpServers": {{"hub": {{"command": "hub", "env": {{"HUB_TOKEN": "{SECRET}"}}}}}}}}\n'


async def test_secret_is_moved_after_a_preview_and_moved_back(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(FILE, encoding="utf-8")
    async with open_console(tmp_path / "crib") as console:
        pages = [(await console.page("/secrets")).text]
        assert "HUB_TOKEN" in pages[0]
        looked = await console.send_json("/secrets/move", {"name": "HUB_TOKEN"})
        assert looked["done"]["dryRun"] is True
        assert file.read_text(encoding="utf-8") == FILE
        pages.append((await console.send("/secrets/move", {"name": "HUB_TOKEN"})).text)
        moved = await console.send("/secrets/move", {"name": "HUB_TOKEN", "do": "save"})
        pages.append(moved.text)
        assert SECRET not in file.read_text(encoding="utf-8")
        undone = await console.send_json("/secrets/undo", {})
        assert (undone["stored"], undone["canUndo"], file.read_text(encoding="utf-8")) == ([], False, FILE)
        stored = await console.send_json("/secrets/set", {"name": "OTHER", "value": "a-new-value-1"})
        assert ([each["name"] for each in stored["stored"]], stored["set"]["restarted"]) == (["OTHER"], [])
        pages.append(str(stored))
        await console.send("/secrets/OTHER/remove", {})
        assert (await console.json("/secrets"))["stored"] == []
    assert not [page for page in pages if SECRET in page or "a-new-value-1" in page]
