"""A crib with one of everything, and the address of every page that the router lists."""

import json
import sys
from pathlib import Path

import anyio

from integration.web.console.console_client import ConsoleClient
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.console.app import console_routes

TESTS = Path(__file__).resolve().parents[3]
PARTS = frozenset({
    "/overview", "/sessions/{id}/items", "/sessions/{id}/head", "/waiting/pill", "/schedules/-/when", "/stop-all",
    "/app-pages/probe",
})  # fmt: skip
"""Parts that an open page loads."""
DOWNLOADS = frozenset({"/agents/{id}/export/{form}", "/activity/export", "/service-worker.js"})
ELSEWHERE = frozenset({"/calls/{number}", "/apps/{id}", "/apps/{id}/approvals", "/app-pages/{id}"})
"""Pages that exist only while a call or an app is open: see `test_tools` and `test_apps`."""


def write_servers(home: Path, tools: int) -> None:
    """Configure one server with this many tools, one that cannot start and one that is disabled."""
    home.mkdir(parents=True, exist_ok=True)
    legacy = {"command": sys.executable, "args": ["-S", "-m", "upstreams.legacy", "crowd", str(tools)]}
    servers = {
        "legacy": legacy | {"env": {"PYTHONPATH": str(TESTS)}},
        "broken": {"command": "no-such-program"},
        "off": {"command": "true", "enabled": False},
    }
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


async def every_page(console: ConsoleClient, cwd: Path) -> dict[str, str]:
    """Fill the crib, and return an address for each GET route except static files and `ELSEWHERE`.

    Raises for an unknown route: a new page has to be added here.
    """
    crib = console.crib
    with anyio.fail_after(60):
        await console.client.post("/api/servers/legacy/test")
        await console.client.post("/api/servers/broken/test")
        crib.runners.add(PlayedRunner({}))
        session = await crib.sessions.create(NewSession("web", str(cwd), title="A session", runner="played"))
        token = {"name": "an-app", "source": "ide"}
        assert (await console.client.post("/api/tokens", json=token)).status_code == 201
        entry = await console.client.post("/api/agents/builder/brain", json={"type": "note", "content": "A note."})
        skill = {"name": "A skill", "description": "Words", "tools": "", "requires": ""}
        await console.send("/agents/builder/skills/-/new", skill)
        schedule = {"agent": "reviewer", "way": "cron", "cron": "0 9 * * 1-5", "name": "Daily", "prompt": "Look."}
        await console.send("/schedules", schedule)
        await console.send("/access/projects", {"path": str(cwd)})
        await crib.permissions.add({"effect": "ask", "pattern": "legacy/echo", "reason": "Because."}, by="owner")
        await crib.call("legacy/echo", {"text": "x"}, principal=crib.owner(source="cli"))
        agent = (await crib.zoo.get("builder")).agent
    known = {
        "/servers/{alias}": "/servers/legacy",
        "/servers/{alias}/{tab}": "/servers/broken/log",
        "/tools/{server}/{tool:path}": "/tools/legacy/echo",
        "/sessions/{id}": f"/sessions/{session.id}",
        "/sessions/{id}/items": f"/sessions/{session.id}/items",
        "/sessions/{id}/head": f"/sessions/{session.id}/head",
        "/sessions/{id}/compare": f"/sessions/{session.id}/compare?other={session.id}",
        "/find": "/find?words=tool",
        "/agents/{id}": "/agents/builder",
        "/agents/{id}/export": "/agents/builder/export",
        "/agents/{id}/export/{form}": "/agents/builder/export/json",
        "/agents/{id}/categories": "/agents/builder/categories",
        "/agents/{id}/skills/-/new": "/agents/builder/skills/-/new",
        "/agents/{id}/skills/{skill}": f"/agents/builder/skills/{agent.skills[-1].id}",
        "/agents/{id}/tools": "/agents/builder/tools",
        "/agents/{id}/brain": "/agents/builder/brain",
        "/agents/{id}/brain/{entry}": f"/agents/builder/brain/{entry.json()['id']}",
        "/agents/{id}/history": "/agents/builder/history",
        "/agents/{id}/history/{version:int}": "/agents/builder/history/1",
        "/access": "/access?tool=legacy/echo&agent=builder",
        "/access/simulate": "/access/simulate?effect=deny&pattern=legacy/*",
        "/access/tools": "/access/tools?agent=builder&server=legacy",
        "/activity/{number:int}": "/activity/1",
        "/schedules/-/when": "/schedules/-/when?way=cron&cron=0+9+*+*+*",
        "/schedules/{id}": f"/schedules/{(await crib.schedules.list())[0].id}",
    }
    paths = [each.path for each in console_routes(crib, "") if "GET" in (each.methods or ())]
    pages = [each for each in paths if not each.startswith("/static/") and each not in ELSEWHERE]
    assert [each for each in pages if "{" in each and each not in known] == []
    return {each: known.get(each, each) for each in pages}
