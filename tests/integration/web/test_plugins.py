"""Plugins over HTTP: listed, granted, disabled, revoked, with every change audited."""

import sys
from pathlib import Path

import pytest

from integration.tools.plugins.packages import install
from integration.web.crib import Running
from toolcrib.model.json import Json

pytestmark = pytest.mark.anyio

PATH = "/api/plugins"


async def request(running: Running, method: str, path: str, body: Json = None, status: int = 200) -> Json:
    async with running.client() as client:
        answer = await client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_plugin_is_granted_as_shown_disabled_and_revoked(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    install(target, name="overhttp")
    monkeypatch.setattr(sys, "path", [str(target), *sys.path])
    (shown,) = await request(running, "GET", PATH)
    assert (shown["state"], shown["capabilities"], shown["tools"]) == ("not_granted", ["network"], [])
    stale = await request(running, "POST", f"{PATH}/overhttp/grant", {"digest": "0" * 64}, 409)
    assert stale["code"] == "plugin.changed"
    granted = await request(running, "POST", f"{PATH}/overhttp/grant", {"digest": shown["digest"]})
    assert (granted["state"], granted["grantedBy"]) == ("loaded", "owner")
    assert "overhttp/greet" in granted["tools"]
    called = await request(running, "POST", "/api/tools/overhttp/greet/call", {"arguments": {"name": "Ada"}})
    assert called["isError"] is False
    assert (await request(running, "POST", f"{PATH}/overhttp/disable"))["state"] == "disabled"
    await request(running, "GET", "/api/tools/overhttp/greet", status=404)
    assert (await request(running, "POST", f"{PATH}/overhttp/enable"))["state"] == "loaded"
    assert await request(running, "POST", f"{PATH}/overhttp/revoke") == {"id": "overhttp"}
    assert (await request(running, "GET", f"{PATH}/overhttp"))["state"] == "not_granted"
    records = await request(running, "GET", "/api/audit?limit=100")
    kinds = {each["tool"] for each in records if each["phase"] == "outcome" and each["tool"].startswith("plugins.")}
    assert kinds == {"plugins.grant", "plugins.disable", "plugins.enable", "plugins.revoke"}


async def test_plugin_that_is_not_installed_or_not_granted_is_404(running: Running) -> None:
    assert (await request(running, "GET", f"{PATH}/nothing", status=404))["code"] == "plugin.unknown"
    for way in ("disable", "enable", "revoke"):
        assert (await request(running, "POST", f"{PATH}/nothing/{way}", status=404))["code"] == "plugin.not_granted"
    await request(running, "POST", f"{PATH}/nothing/explode", status=422)


async def test_token_cannot_reach_plugins(running: Running) -> None:
    token = await request(running, "POST", "/api/tokens", {"name": "t", "source": "api"}, 201)
    async with running.client(token=False) as client:
        answer = await client.get(PATH, headers={"authorization": f"Bearer {token['secret']}"})
    assert answer.status_code in (403, 404)
