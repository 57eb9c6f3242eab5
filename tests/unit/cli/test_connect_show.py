"""The list of connected apps, with what each of them receives."""

import pytest

from toolcrib.cli.connect.show import show_clients
from toolcrib.model.json import JsonObject


def test_list_shows_what_a_connected_app_receives_under_each_choice(capsys: pytest.CaptureFixture[str]) -> None:
    offers: list[JsonObject] = [
        {"tools": "all", "definitions": 41, "tokens": 18_400, "saves": 0},
        {"tools": "search", "definitions": 2, "tokens": 236, "saves": 18_164},
        {"tools": "code", "definitions": 3, "tokens": 487, "saves": 17_913},
    ]
    connection: JsonObject = {"type": "http", "agent": None, "stale": [], "file": "f", "line": 1}
    client: JsonObject = {"client": "cursor", "title": "Cursor", "state": "connected", "others": 0}
    show_clients([client | {"connections": [connection | {"tools": "search", "offers": offers}]}])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cursor", "all", "41", "18,400", "0"] in rows
    assert ["cursor", "search", "(now)", "2", "236", "18,164"] in rows
