"""Every route there is: none is open but the two that should be, and none can be added without being named here."""

from collections.abc import Iterable, Iterator

import pytest
from starlette.routing import BaseRoute, Route

from integration.server.crib import Running
from integration.server.wire import status_of, talk
from toolcrib.server.app import create_routes
from toolcrib.server.guard import OPEN_PATHS
from toolcrib.server.limits import Throttle
from toolcrib.server.login import Logins

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
    ("POST", "/api/servers/{name:path}/reload"),
    ("GET", "/api/servers/{name:path}/auth"),
    ("POST", "/api/servers/{name:path}/auth"),
    ("POST", "/api/servers/{name:path}/unauth"),
    ("GET", "/"),
    ("GET", "/api/audit"),
    ("GET", "/api/audit/segments"),
    ("GET", "/api/audit/verify"),
    ("POST", "/api/audit/erase"),
    ("POST", "/api/audit/seal"),
    ("GET", "/api/approvals"),
    ("GET", "/api/approvals/{approval_id}"),
    ("GET", "/api/audit/export"),
    ("GET", "/api/bundles"),
    ("GET", "/api/bundles/{bundle_id}"),
    ("GET", "/api/policy/explain"),
    ("GET", "/api/policy/problems"),
    ("GET", "/api/policy/rules"),
    ("GET", "/api/policy/rules/{rule_id}"),
    ("GET", "/api/projects"),
    ("GET", "/api/projects/{path:path}"),
    ("GET", "/api/tokens"),
    ("GET", "/api/tools/changes"),
    ("DELETE", "/api/bundles/{bundle_id}"),
    ("DELETE", "/api/policy/rules/{rule_id}"),
    ("DELETE", "/api/projects/{path:path}"),
    ("DELETE", "/api/tokens/{name}"),
    ("PATCH", "/api/policy/rules/{rule_id}"),
    ("POST", "/api/approvals/{approval_id}"),
    ("POST", "/api/bundles"),
    ("POST", "/api/policy/rules"),
    ("POST", "/api/policy/simulate"),
    ("POST", "/api/projects"),
    ("POST", "/api/tokens"),
    ("POST", "/api/tools/{server}/{tool:path}/accept"),
    ("POST", "/api/tools/{server}/{tool:path}/reject"),
    ("PUT", "/api/bundles/{bundle_id}"),
    ("PUT", "/api/projects/{path:path}"),
    ("GET", "/api/connect"),
    ("POST", "/api/connect/{client}"),
    ("DELETE", "/api/connect/{client}"),
    ("GET", "/api/events"),
    ("GET", "/api/openapi.json"),
    ("DELETE", "/api/servers/{name:path}"),
    ("GET", "/api/servers"),
    ("GET", "/api/servers/-/export"),
    ("GET", "/api/servers/-/problems"),
    ("GET", "/api/servers/{name:path}"),
    ("GET", "/api/settings"),
    ("GET", "/api/tools"),
    ("GET", "/api/tools/problems"),
    ("GET", "/api/tools/{server}/{tool:path}"),
    ("GET", "/healthz"),
    ("GET", "/login"),
    ("GET", "/static/console.css"),
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
    ("POST", "/api/servers/{name:path}/trust"),
    ("POST", "/api/servers/{name:path}/untrust"),
    ("POST", "/api/tools/{server}/{tool:path}/call"),
    ("PUT", "/api/servers/{name:path}"),
}
ENDPOINT = {
    (method, path) for method in ("GET", "POST", "DELETE") for path in ("/mcp", "/mcp/servers/x", "/mcp/agents/x")
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    """The routes, also of included routers; a kind of route that is not known here fails."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from all_routes(included.routes)
        else:
            assert isinstance(route, Route), route
            yield route


async def test_the_inventory_names_every_route(running: Running) -> None:
    address = f"127.0.0.1:{running.port}"
    app = create_routes(running.holding.crib, Logins(address), Throttle(), address=address)
    found = {
        (method, route.path) for route in all_routes(app.routes) for method in (route.methods or ()) if method != "HEAD"
    }
    assert found == INVENTORY


async def test_nothing_but_the_open_paths_answers_without_a_credential(running: Running) -> None:
    assert {"/healthz", "/login"} == OPEN_PATHS
    async with running.client(token=False) as client:
        for path in sorted({path for _, path in INVENTORY | ENDPOINT}):
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


async def test_no_spelling_of_a_path_gets_around_the_guard(running: Running) -> None:
    spellings = [
        "/healthz/../api/tools", "/healthz/%2e%2e/api/tools", "/healthz%2f..%2fapi/tools", "//api/tools", "/api//tools",
        "/%61pi/tools", "/API/tools", "/api/tools/", "/api/tools%00", "/healthz;/api/tools", "/login/../mcp", "/mcp/",
        "/%6dcp", "/mcp%2f", "/./mcp", "/healthz%2f..%2fmcp", "/healthz?/api/tools&x=/healthz/../", "/login%3Fcode=x",
    ]  # fmt: skip
    head = f"HTTP/1.1\r\nhost: 127.0.0.1:{running.port}\r\nconnection: close\r\n\r\n"
    for spelling in spellings:
        answer = await talk(running.port, f"GET {spelling} {head}".encode())
        assert status_of(answer) == (200 if spelling.startswith("/healthz?") else 401), spelling
        assert b"inputSchema" not in answer


async def test_health_tells_nothing(running: Running) -> None:
    async with running.client(token=False) as client:
        answer = await client.get("/healthz")
    assert answer.json() == {"status": "ok"}
    assert set(answer.headers) == {
        "date", "content-length", "content-type", "x-content-type-options", "referrer-policy", "cache-control",
        "content-security-policy",
    }  # fmt: skip
