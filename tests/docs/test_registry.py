"""The commands of docs/registry.md, run in order with a snapshot of a registry."""

import json
from pathlib import Path
from typing import Any

from docs.pages import commands, follow, page, reader

NPM = {"registryType": "npm", "identifier": "@example/weather", "version": "1.0.0", "transport": {"type": "stdio"}}


def test_commands_of_the_page_find_and_add_published_servers(tmp_path: Path) -> None:
    arguments = [{"type": "positional", "valueHint": "root", "isRequired": True}]
    notes: dict[str, Any] = {
        "name": "com.example/notes",
        "description": "Notes.",
        "version": "1.2.0",
        "packages": [NPM | {"packageArguments": arguments, "environmentVariables": [{"name": "NOTES_KEY"}]}],
    }
    weather = {"name": "com.example/weather", "description": "Forecasts.", "version": "1.0.0", "packages": [NPM]}
    snapshot = tmp_path / "servers.json"
    snapshot.write_text(json.dumps([weather, notes]), encoding="utf-8")
    shell = reader(tmp_path, TOOLCRIB_REGISTRY_URL=str(snapshot))
    found, added, shown, _ = follow(shell, commands(page("registry")))
    assert "com.example/weather" in found
    assert 'Added "weather"' in added
    assert "project" in shown
    own = json.loads((tmp_path / "crib" / "mcp.json").read_text(encoding="utf-8"))["mcpServers"]
    assert own["my-notes"]["env"] == {"NOTES_KEY": "k3y"}
    assert own["weather"]["registry"] == {"name": "com.example/weather", "version": "1.0.0"}
    refused = shell.run("mcp", "add", "registry:com.example/weather", "--as", "other")
    assert refused.returncode == 2
    assert "publisher:   owner of example.com" in refused.stderr
    assert shell.json("mcp", "search", "weather")[0]["options"][0]["id"] == "npm"
