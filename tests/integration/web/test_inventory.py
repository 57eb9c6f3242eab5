"""Every route is listed here, and only two of them are open without a credential."""

from collections.abc import Iterable, Iterator
from itertools import chain

import pytest
from starlette.routing import BaseRoute, Route

from integration.web.crib import Running
from integration.web.wire import exchange, status_of
from toolcrib.web.api.late_loading import LateApi
from toolcrib.web.app import create_routes
from toolcrib.web.guard import OPEN_PATHS
from toolcrib.web.limits import Throttle
from toolcrib.web.login import Logins

pytestmark = pytest.mark.anyio

INVENTORY = {
    ("DELETE", "/api/agents/{agent_id}"),
    ("DELETE", "/api/agents/{agent_id}/brain/{entry_id}"),
    ("GET", "/api/agents"),
    ("GET", "/api/agents/-/skills"),
    ("GET", "/api/agents/-/templates"),
    ("GET", "/api/agents/{agent_id}"),
    ("GET", "/api/agents/{agent_id}/brain"),
    ("GET", "/api/agents/{agent_id}/brain/{entry_id}"),
    ("GET", "/api/agents/{agent_id}/export"),
    ("GET", "/api/agents/{agent_id}/inject"),
    ("GET", "/api/agents/{agent_id}/revisions"),
    ("GET", "/api/agents/{agent_id}/revisions/{version}"),
    ("PATCH", "/api/agents/{agent_id}"),
    ("PATCH", "/api/agents/{agent_id}/brain/{entry_id}/pin"),
    ("PATCH", "/api/agents/{agent_id}/skills/{skill_id}"),
    ("POST", "/api/agents"),
    ("POST", "/api/agents/-/import"),
    ("POST", "/api/agents/{agent_id}/brain"),
    ("POST", "/api/agents/{agent_id}/clone"),
    ("POST", "/api/agents/{agent_id}/revisions/{version}/restore"),
    ("PUT", "/api/agents/{agent_id}"),
    ("PUT", "/api/agents/{agent_id}/brain/{entry_id}"),
    ("DELETE", "/api/sessions/{session_id}"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/{session_id}"),
    ("GET", "/api/sessions/{session_id}/events"),
    ("GET", "/api/sessions/{session_id}/transcript"),
    ("PATCH", "/api/sessions/{session_id}"),
    ("POST", "/api/sessions"),
    ("POST", "/api/sessions/{session_id}/fork"),
    ("POST", "/api/sessions/{session_id}/interrupt"),
    ("POST", "/api/sessions/{session_id}/messages"),
    ("POST", "/api/approvals/{approval_id}/answers"),
    ("POST", "/api/approvals/{approval_id}/link"),
    ("POST", "/api/sessions/{session_id}/questions/{question_id}"),
    ("DELETE", "/api/schedules/{schedule_id}"),
    ("GET", "/api/schedules"),
    ("GET", "/api/schedules/{schedule_id}"),
    ("GET", "/api/schedules/{schedule_id}/history"),
    ("GET", "/api/schedules/{schedule_id}/readiness"),
    ("PATCH", "/api/schedules/{schedule_id}"),
    ("POST", "/api/schedules"),
    ("POST", "/api/schedules/{schedule_id}/pause"),
    ("POST", "/api/schedules/{schedule_id}/resume"),
    ("POST", "/api/schedules/{schedule_id}/run"),
    ("PUT", "/api/schedules/{schedule_id}"),
    ("GET", "/api/plugins"),
    ("GET", "/api/plugins/{name}"),
    ("POST", "/api/plugins/{name}/grant"),
    ("POST", "/api/plugins/{name}/revoke"),
    ("POST", "/api/plugins/{name}/{switch}"),
    ("POST", "/api/servers/reload"),
    ("POST", "/api/servers/test"),
    ("POST", "/api/servers/{name:path}/test"),
    ("POST", "/api/servers/{name:path}/cancel"),
    ("POST", "/api/servers/{name:path}/reload"),
    ("GET", "/api/servers/{name:path}/auth"),
    ("POST", "/api/servers/{name:path}/auth"),
    ("POST", "/api/servers/{name:path}/unauth"),
    ("GET", "/api/audit"),
    ("GET", "/api/audit/segments"),
    ("GET", "/api/audit/verify"),
    ("POST", "/api/audit/erase"),
    ("POST", "/api/audit/anchor"),
    ("POST", "/api/audit/seal"),
    ("POST", "/api/audit/verify"),
    ("GET", "/api/approvals"),
    ("GET", "/api/approvals/{approval_id}"),
    ("GET", "/api/audit/export"),
    ("GET", "/api/bundles"),
    ("GET", "/api/bundles/{bundle_id}"),
    ("GET", "/api/policy/check"),
    ("GET", "/api/policy/explain"),
    ("GET", "/api/policy/flows"),
    ("GET", "/api/policy/marks"),
    ("GET", "/api/policy/presets"),
    ("GET", "/api/policy/problems"),
    ("GET", "/api/policy/reach"),
    ("GET", "/api/policy/rules"),
    ("GET", "/api/policy/rules/{rule_id}"),
    ("GET", "/api/policy/suggestions"),
    ("GET", "/api/policy/tool-sets"),
    ("PUT", "/api/policy/tool-sets"),
    ("GET", "/api/projects"),
    ("GET", "/api/projects/{path:path}"),
    ("GET", "/api/nodes"),
    ("GET", "/api/tokens"),
    ("GET", "/api/tools/changes"),
    ("GET", "/api/tools/cost"),
    ("DELETE", "/api/bundles/{bundle_id}"),
    ("DELETE", "/api/policy/marks/{conversation:path}"),
    ("DELETE", "/api/policy/presets/{preset_id}"),
    ("DELETE", "/api/policy/rules/{rule_id}"),
    ("PUT", "/api/policy/presets/{preset_id}"),
    ("DELETE", "/api/projects/{path:path}"),
    ("DELETE", "/api/tokens/{name}"),
    ("PATCH", "/api/policy/rules/{rule_id}"),
    ("POST", "/api/approvals/{approval_id}"),
    ("POST", "/api/bundles"),
    ("POST", "/api/policy/rules"),
    ("POST", "/api/policy/simulate"),
    ("POST", "/api/projects"),
    ("POST", "/api/nodes/{id}/drain"),
    ("POST", "/api/tokens"),
    ("POST", "/api/tools/cost/hide"),
    ("POST", "/api/tools/cost/shorten"),
    ("POST", "/api/tools/{server}/{tool:path}/accept"),
    ("POST", "/api/tools/{server}/{tool:path}/reject"),
    ("PUT", "/api/bundles/{bundle_id}"),
    ("PUT", "/api/projects/{path:path}"),
    ("DELETE", "/api/secrets/{name}"),
    ("GET", "/api/secrets"),
    ("GET", "/api/secrets/stored"),
    ("POST", "/api/secrets/move"),
    ("POST", "/api/secrets/undo"),
    ("PUT", "/api/secrets/{name}"),
    ("GET", "/api/connect"),
    ("POST", "/api/connect/{client}"),
    ("DELETE", "/api/connect/{client}"),
    ("GET", "/api/sessions/{session_id}/compare"),
    ("GET", "/api/sessions/{session_id}/recording"),
    ("POST", "/api/sessions/replay"),
    ("POST", "/api/sessions/{session_id}/replay"),
    ("POST", "/api/servers/{name:path}/record"),
    ("GET", "/api/registry"),
    ("GET", "/api/registry/{name:path}"),
    ("POST", "/api/registry/install"),
    ("POST", "/api/registry/plan"),
    ("GET", "/api/events"),
    ("GET", "/api/openapi.json"),
    ("DELETE", "/api/servers/{name:path}"),
    ("GET", "/api/servers"),
    ("GET", "/api/servers/-/export"),
    ("GET", "/api/servers/-/problems"),
    ("GET", "/api/servers/{name:path}"),
    ("GET", "/api/settings"),
    ("GET", "/api/backups"),
    ("GET", "/api/status"),
    ("POST", "/api/backups"),
    ("POST", "/api/resume-all"),
    ("POST", "/api/stop-all"),
    ("GET", "/api/tools"),
    ("GET", "/api/tools/problems"),
    ("GET", "/api/tools/search"),
    ("GET", "/api/tools/{server}/{tool:path}"),
    ("GET", "/healthz"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("POST", "/api/nodes/servers/{key}"),
    ("POST", "/api/nodes/servers/{key}/calls"),
    ("GET", "/metrics"),
    ("POST", "/api/login"),
    ("POST", "/api/servers"),
    ("POST", "/api/servers/export"),
    ("POST", "/api/servers/import"),
    ("POST", "/api/servers/recognise"),
    ("POST", "/api/servers/trust"),
    ("POST", "/api/servers/undo"),
    ("POST", "/api/servers/untrust"),
    ("POST", "/api/servers/{name:path}/disable"),
    ("POST", "/api/servers/{name:path}/enable"),
    ("POST", "/api/servers/{name:path}/sandbox"),
    ("POST", "/api/servers/{name:path}/trust"),
    ("POST", "/api/servers/{name:path}/untrust"),
    ("POST", "/api/tools/{server}/{tool:path}/call"),
    ("PUT", "/api/servers/{name:path}"),
}
CONSOLE = {
    ("GET", "/"),
    ("GET", "/approve/{token}"),
    ("POST", "/approve/{token}"),
    ("GET", "/secrets"),
    ("POST", "/secrets/move"),
    ("POST", "/secrets/set"),
    ("POST", "/secrets/undo"),
    ("POST", "/secrets/{name}/remove"),
    ("GET", "/access"),
    ("GET", "/access/bundles"),
    ("POST", "/access/bundles"),
    ("POST", "/access/bundles/{id}"),
    ("POST", "/access/bundles/{id}/remove"),
    ("GET", "/access/projects"),
    ("POST", "/access/projects"),
    ("POST", "/access/projects/remove"),
    ("GET", "/access/reach"),
    ("GET", "/access/rules"),
    ("POST", "/access/rules"),
    ("POST", "/access/rules/{id}/remove"),
    ("POST", "/access/presets/{id}"),
    ("GET", "/access/simulate"),
    ("GET", "/apps/{id}"),
    ("GET", "/apps/{id}/approvals"),
    ("GET", "/app-pages/probe"),
    ("GET", "/app-pages/{id}"),
    ("POST", "/apps/{id}/domains"),
    ("POST", "/apps/{id}/requests"),
    ("POST", "/sessions/{session}/app"),
    ("GET", "/agents/{id}/categories"),
    ("POST", "/agents/{id}/categories"),
    ("POST", "/agents/{id}/categories/{category}"),
    ("GET", "/tools/review"),
    ("POST", "/tools/review"),
    ("GET", "/access/tools"),
    ("POST", "/access/tools"),
    ("GET", "/access/tokens"),
    ("POST", "/access/tokens"),
    ("POST", "/access/tokens/{name}/revoke"),
    ("GET", "/activity"),
    ("GET", "/activity/export"),
    ("GET", "/activity/verify"),
    ("GET", "/activity/{number:int}"),
    ("GET", "/agents"),
    ("POST", "/agents"),
    ("GET", "/agents/-/import"),
    ("POST", "/agents/-/import"),
    ("GET", "/agents/{id}"),
    ("POST", "/agents/{id}"),
    ("GET", "/agents/{id}/brain"),
    ("POST", "/agents/{id}/brain"),
    ("POST", "/agents/{id}/brain/-/include"),
    ("GET", "/agents/{id}/brain/{entry}"),
    ("POST", "/agents/{id}/brain/{entry}"),
    ("POST", "/agents/{id}/brain/{entry}/delete"),
    ("POST", "/agents/{id}/brain/{entry}/pin"),
    ("POST", "/agents/{id}/clone"),
    ("POST", "/agents/{id}/delete"),
    ("GET", "/agents/{id}/export"),
    ("GET", "/agents/{id}/export/{form}"),
    ("GET", "/agents/{id}/history"),
    ("GET", "/agents/{id}/history/{version:int}"),
    ("POST", "/agents/{id}/restore"),
    ("GET", "/agents/{id}/skills/-/new"),
    ("POST", "/agents/{id}/skills/-/new"),
    ("POST", "/agents/{id}/skills/-/pick"),
    ("GET", "/agents/{id}/skills/{skill}"),
    ("POST", "/agents/{id}/skills/{skill}"),
    ("POST", "/agents/{id}/skills/{skill}/remove"),
    ("POST", "/agents/{id}/skills/{skill}/switch"),
    ("GET", "/agents/{id}/tools"),
    ("POST", "/agents/{id}/tools"),
    ("GET", "/calls/{number}"),
    ("POST", "/calls/{number}/stop"),
    ("GET", "/connect"),
    ("POST", "/connect/{client}"),
    ("POST", "/connect/{client}/link"),
    ("POST", "/connect/{client}/undo"),
    ("POST", "/tools/hide"),
    ("POST", "/tools/hide/undo"),
    ("POST", "/tools/shorten"),
    ("POST", "/tools/shorten/undo"),
    ("GET", "/find"),
    ("GET", "/static/manifest.webmanifest"),
    ("POST", "/rows/{alias}/{action}"),
    ("GET", "/overview"),
    ("GET", "/schedules"),
    ("POST", "/schedules"),
    ("GET", "/schedules/-/new"),
    ("GET", "/schedules/-/when"),
    ("GET", "/schedules/{id}"),
    ("POST", "/schedules/{id}"),
    ("POST", "/schedules/{id}/{action}"),
    ("GET", "/servers"),
    ("POST", "/servers/-/undo"),
    ("POST", "/servers/check"),
    ("GET", "/servers/new"),
    ("GET", "/servers/registry"),
    ("POST", "/servers/registry"),
    ("POST", "/servers/registry/add"),
    ("POST", "/servers/new"),
    ("POST", "/servers/new/save"),
    ("GET", "/servers/{alias}"),
    ("POST", "/servers/{alias}/{action}"),
    ("GET", "/servers/{alias}/{tab}"),
    ("GET", "/sessions"),
    ("POST", "/sessions"),
    ("GET", "/sessions/{id}"),
    ("POST", "/sessions/{id}/change"),
    ("POST", "/sessions/{id}/delete"),
    ("POST", "/sessions/{id}/fork"),
    ("GET", "/sessions/{id}/compare"),
    ("POST", "/sessions/{id}/replay"),
    ("GET", "/sessions/{id}/head"),
    ("POST", "/sessions/{id}/interrupt"),
    ("GET", "/sessions/{id}/items"),
    ("POST", "/sessions/{id}/messages"),
    ("GET", "/settings"),
    ("GET", "/stop-all"),
    ("POST", "/resume-all"),
    ("POST", "/stop-all"),
    ("GET", "/static/{name}"),
    ("GET", "/tools"),
    ("GET", "/tools/{server}/{tool:path}"),
    ("POST", "/tools/{server}/{tool:path}/accept"),
    ("POST", "/tools/{server}/{tool:path}/call"),
    ("POST", "/tools/{server}/{tool:path}/reject"),
    ("GET", "/service-worker.js"),
    ("POST", "/notifications"),
    ("POST", "/notifications/key"),
    ("POST", "/notifications/renew"),
    ("POST", "/notifications/{id}/remove"),
    ("GET", "/waiting"),
    ("POST", "/waiting/approvals/{id}"),
    ("GET", "/waiting/pill"),
    ("POST", "/waiting/questions/{id}"),
}
"""The pages of the console, their parts and their forms."""
ENDPOINT = {
    (method, path) for method in ("GET", "POST", "DELETE") for path in ("/mcp", "/mcp/servers/x", "/mcp/agents/x")
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    """Yield the routes, also of included routers. Fails for an unknown kind of route."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from all_routes(included.routes)
        else:
            assert isinstance(route, Route), route
            yield route


async def test_inventory_lists_every_route(running: Running) -> None:
    address = f"127.0.0.1:{running.port}"
    apps = create_routes(running.holding.crib, Logins(address), Throttle(), address=address)
    app_routes = (app.complete() if isinstance(app, LateApi) else app.routes for app in apps.all())
    routes = all_routes(chain.from_iterable(app_routes))
    found = {(method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"}
    assert found == INVENTORY | CONSOLE


async def test_only_open_paths_respond_without_a_credential(running: Running) -> None:
    assert {"/healthz", "/login"} == OPEN_PATHS
    async with running.client(token=False) as client:
        for path in sorted({path for _, path in INVENTORY | CONSOLE | ENDPOINT}):
            for method in METHODS:
                answer = await client.request(method, path)
                if path in OPEN_PATHS:
                    assert answer.status_code in (200, 401, 405), (method, path)
                else:
                    assert answer.status_code == 401, (method, path)
                assert not [name for name in answer.headers if name.startswith("access-control")]
                assert answer.headers["x-content-type-options"] == "nosniff"
                for_programs = path.startswith(("/mcp", "/api/"))
                assert answer.headers["referrer-policy"] == ("no-referrer" if for_programs else "same-origin")
                assert "no-store" in answer.headers["cache-control"]


async def test_no_spelling_of_a_path_bypasses_the_guard(running: Running) -> None:
    spellings = [
        "/healthz/../api/tools", "/healthz/%2e%2e/api/tools", "/healthz%2f..%2fapi/tools", "//api/tools", "/api//tools",
        "/%61pi/tools", "/API/tools", "/api/tools/", "/api/tools%00", "/healthz;/api/tools", "/login/../mcp", "/mcp/",
        "/%6dcp", "/mcp%2f", "/./mcp", "/healthz%2f..%2fmcp", "/healthz?/api/tools&x=/healthz/../", "/login%3Fcode=x",
    ]  # fmt: skip
    head = f"HTTP/1.1\r\nhost: 127.0.0.1:{running.port}\r\nconnection: close\r\n\r\n"
    for spelling in spellings:
        answer = await exchange(running.port, f"GET {spelling} {head}".encode())
        assert status_of(answer) == (200 if spelling.startswith("/healthz?") else 401), spelling
        assert b"inputSchema" not in answer


async def test_health_check_reveals_nothing_else(running: Running) -> None:
    async with running.client(token=False) as client:
        answer = await client.get("/healthz")
    assert answer.json() == {"status": "ok"}
    assert set(answer.headers) == {
        "date", "content-length", "content-type", "x-content-type-options", "referrer-policy", "cache-control",
        "content-security-policy",
    }  # fmt: skip
