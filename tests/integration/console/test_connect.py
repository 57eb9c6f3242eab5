"""The page that connects coding tools: what would be written is shown, written when told, and taken back exactly."""

import json
from pathlib import Path

import pytest

from integration.console.visitor import visiting
from toolcrib.audit import Filters
from toolcrib.model.json import Json, JsonObject

pytestmark = pytest.mark.anyio

FILE = '{"mcpServers": {"other": {"command": "other"}}, "kept": [1, 2]}\n'


async def test_a_tool_is_connected_after_a_look_and_its_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(FILE, encoding="utf-8")
    async with visiting(tmp_path / "crib") as visitor:
        assert of_cursor(await visitor.json("/connect"))["state"] == "not_connected"
        looked = await visitor.send_json("/connect/cursor", {})
        assert looked["done"]["change"]["dryRun"] is True
        assert file.read_text(encoding="utf-8") == FILE
        written = await visitor.send_json("/connect/cursor", {"do": "save"})
        assert of_cursor(written)["state"] == "connected"
        assert json.loads(file.read_text(encoding="utf-8"))["kept"] == [1, 2]
        assert "Take back" in (await visitor.page("/connect")).text
        back = await visitor.send_json("/connect/cursor/undo", {})
        assert (of_cursor(back)["state"], back["done"]["exact"]) == ("not_connected", True)
        assert file.read_text(encoding="utf-8") == FILE
        made = await visitor.crib.audit.find(Filters(door="console", phase="outcome"))
        assert [record["tool"] for record in made] == ["clients.disconnect", "clients.connect"]


def of_cursor(value: JsonObject) -> JsonObject:
    clients: list[Json] = value["clients"]
    return next(each for each in clients if each["client"] == "cursor")
