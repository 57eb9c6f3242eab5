"""REST on a real crib: shapes, errors and sign-in."""

import logging
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from pydantic import BaseModel

from integration.web.crib import Running, running_crib
from integration.web.wire import connect, raw_connection, read_until, status_of
from toolcrib.web.api.shapes import (
    AuditRecordShape,
    CallAnswer,
    ProblemDetails,
    SettingShape,
    ToolShape,
    VerificationShape,
)
from toolcrib.web.console import assets
from toolcrib.web.limits import WireLimits

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


def fits(shape: type[BaseModel], value: Any) -> bool:
    """Return whether a value has this shape and survives a round trip."""
    return shape.model_validate(value).model_dump(by_alias=True, exclude_unset=True) == value


async def test_tool_list_has_exactly_the_documented_fields(running: Running) -> None:
    async with running.client() as client:
        tools = (await client.get("/api/tools")).json()
    assert [tool["ref"] for tool in tools] == sorted(tool["ref"] for tool in tools)
    assert all(fits(ToolShape, tool) for tool in tools)
    [echo] = [tool for tool in tools if tool["ref"] == "bench/echo"]
    assert echo["exposedName"] == "bench_echo"
    assert echo["marks"] == {"readOnly": True, "destructive": False, "privileged": False, "schedulerBlocked": False}
    assert echo["inputSchema"]["required"] == ["text"]
    assert set(echo) == {"ref", "server", "name", "exposedName", "description", "inputSchema", "marks", "problems"}


async def test_tools_are_filtered_and_searched(running: Running) -> None:
    async with running.client() as client:
        mine = (await client.get("/api/tools", params={"server": "bench"})).json()
        none = (await client.get("/api/tools", params={"server": "missing"})).json()
        found = (await client.get("/api/tools", params={"q": "say again"})).json()
        problems = (await client.get("/api/tools/problems")).json()
    assert {tool["server"] for tool in mine} == {"bench"}
    assert none == []
    assert found[0]["ref"] == "bench/echo"
    assert problems == []


async def test_tool_is_returned_or_unknown(running: Running) -> None:
    async with running.client() as client:
        shown = await client.get("/api/tools/bench/echo")
        unknown = await client.get("/api/tools/bench/nothing")
        slashed = await client.get("/api/tools/bench/a%2Fb/c")
    assert fits(ToolShape, shown.json())
    assert (unknown.status_code, unknown.json()["code"]) == (404, "tool.unknown")
    assert "bench/a/b/c" in slashed.json()["detail"]


async def test_call_returns_the_result_and_its_audit_id(running: Running) -> None:
    async with running.client() as client:
        answer = await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "hi", "times": 2}})
        records = (await client.get("/api/audit", params={"server": "bench"})).json()
    called = answer.json()
    assert fits(CallAnswer, called)
    assert called["content"] == [{"type": "text", "text": "hihi"}]
    assert called["isError"] is False
    assert all(fits(AuditRecordShape, record) for record in records)
    outcome, intent = records
    assert (intent["phase"], outcome["phase"]) == ("intent", "outcome")
    assert intent["id"] == called["auditId"]
    assert intent["arguments"] == {"text": "hi", "times": 2}
    assert (intent["door"], intent["principal"]["source"]) == ("api", "api")


async def test_invalid_arguments_are_an_error_result_that_names_the_field(running: Running) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"text": 5}, "text"),
        ({}, "text"),
        ({"text": "a", "extra": 1}, "extra"),
        ({"text": "a", "times": "x"}, "times"),
    ]
    async with running.client() as client:
        for arguments, field in wrong:
            answer = await client.post("/api/tools/bench/echo/call", json={"arguments": arguments})
            assert (answer.status_code, answer.json()["isError"]) == (200, True), arguments
            assert field in answer.json()["content"][0]["text"]


async def test_failing_tool_is_an_error_result(running: Running) -> None:
    async with running.client() as client:
        answer = await client.post("/api/tools/bench/broken/call", json={})
    assert (answer.status_code, answer.json()["isError"]) == (200, True)


async def test_owner_can_call_as_another_source_and_the_audit_records_it(running: Running) -> None:
    names = {"source": "scheduler", "agent": "helper", "mode": "plan", "session": "s1", "cwd": "/somewhere"}
    async with running.client() as client:
        made = await client.post("/api/agents", json={"id": "helper", "name": "Helper"})
        assert made.is_success
        answer = await client.post("/api/tools/bench/echo/call", params=names, json={"arguments": {"text": "hi"}})
        [intent] = (await client.get("/api/audit", params={"agent": "helper", "phase": "intent"})).json()
        cli = await client.post(
            "/api/tools/bench/broken/call", params={"source": "cli", "cwd": "/here"}, json={"arguments": {}}
        )
        by_hand = (await client.get("/api/audit", params={"door": "cli"})).json()
    assert answer.json()["isError"] is False
    assert intent["principal"] == {"kind": "owner", "name": "owner", **names}
    assert cli.status_code == 200
    assert {record["principal"]["source"] for record in by_hand} == {"cli"}


async def test_call_denied_by_mode_or_source_is_403(running: Running) -> None:
    async with running.client() as client:
        scheduled = {"source": "scheduler", "mode": "default"}
        answer = await client.post("/api/tools/bench/broken/call", params=scheduled, json={})
        plan = await client.post("/api/tools/bench/broken/call", params={"mode": "plan"}, json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "policy.denied")
    assert "no person who could approve" in answer.json()["detail"]
    assert (plan.status_code, plan.json()["code"]) == (403, "policy.denied")


async def test_invalid_principal_parameter_is_refused_with_its_field(running: Running) -> None:
    wrong = {"source": "nowhere", "mode": "wild", "agent": "", "session": "", "cwd": ""}
    async with running.client() as client:
        for name, value in wrong.items():
            answer = await client.get("/api/tools", params={name: value})
            assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")
            assert answer.json()["errors"][0]["path"] == f"query.{name}"


async def test_malformed_json_body_is_refused(running: Running) -> None:
    bodies = [
        b"",
        b"{",
        b'{"arguments":{"text":NaN}}',
        b'{"arguments":{"text":"a","text":"b"}}',
        b'{"arguments":{},"arguments":{}}',
        b'{"arguments":{"text":"\xff"}}',
        b'\xef\xbb\xbf{"arguments":{}}',
        b'{"arguments":{"text":1e400}}',
        b'{"arguments":{}} {}',
        b'{"arguments":' + b"[" * 300 + b"]" * 300 + b"}",
        b"[" * 100_000,
    ]
    async with running.client() as client:
        for body in bodies:
            answer = await client.post("/api/tools/bench/echo/call", content=body, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (400, "request.malformed"), body[:50]


async def test_body_of_another_shape_is_refused_with_its_fields(running: Running) -> None:
    bodies = [
        b"[]",
        b"null",
        b'"x"',
        b'{"arguments":[]}',
        b'{"arguments":null}',
        b'{"argument":{}}',
        b'{"Arguments":{}}',
    ]
    async with running.client() as client:
        for body in bodies:
            answer = await client.post("/api/tools/bench/echo/call", content=body, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid"), body
            assert fits(ProblemDetails, answer.json())
            assert answer.json()["errors"]


async def test_body_without_the_json_media_type_is_refused(running: Running) -> None:
    media_types = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json;charset=utf-7",
    ]
    async with running.client() as client:
        for headers in ({}, *({"content-type": media_type} for media_type in media_types)):
            answer = await client.post("/api/tools/bench/echo/call", content=b'{"arguments":{}}', headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (415, "request.media_type"), headers


async def test_oversized_body_is_refused_with_a_response_that_the_client_receives(running: Running) -> None:
    body = orjson.dumps({"arguments": {"text": "a" * 10_000_000}})

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    async with running.client() as client:
        whole = await client.post("/api/tools/bench/echo/call", content=body, headers=JSON)
        chunked = await client.post("/api/tools/bench/echo/call", content=pieces(), headers=JSON)
        after = await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "a" * 1_000_000}})
    assert (whole.status_code, whole.json()["code"]) == (413, "request.too_large")
    assert (chunked.status_code, chunked.json()["code"]) == (413, "request.too_large")
    assert after.status_code == 200


async def test_disconnected_client_cancels_its_call_and_the_outcome_is_recorded(running: Running) -> None:
    request = b"POST /api/tools/bench/wait/call HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer %b\r\n" % (
        running.port,
        running.token.encode(),
    )
    async with connect(running.port) as stream:
        await stream.send(request + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        await running.bench.started.wait()
    with anyio.fail_after(1):
        await running.bench.cancelled.wait()
    async with running.client() as client:
        outcome, intent = (await client.get("/api/audit", params={"tool": "wait"})).json()
    assert intent["phase"] == "intent"
    assert (outcome["phase"], outcome["isError"]) == ("outcome", True)


async def test_events_are_replayed_and_followed_and_expired_ones_are_gone(running: Running) -> None:
    feed = running.holding.crib.feed
    start = feed.last
    feed.publish("notice", {"text": "one"})
    async with running.client() as client:
        async with client.stream("GET", "/api/events", params={"after": start}) as response:
            lines = response.aiter_lines()
            assert response.headers["content-type"].startswith("text/event-stream")
            assert await anext(lines) == f"id: {start + 1}"
            assert await anext(lines) == "event: notice"
            assert orjson.loads((await anext(lines)).removeprefix("data: "))["text"] == "one"
            assert await anext(lines) == ""
            feed.publish("notice", {"text": "two"})
            assert await anext(lines) == f"id: {start + 2}"
        headers = {"last-event-id": str(start + 1)}
        async with client.stream("GET", "/api/events", params={"after": start}, headers=headers) as response:
            assert await anext(response.aiter_lines()) == f"id: {start + 2}"
        for after in (1, feed.last + 1):
            gone = await client.get("/api/events", params={"after": after})
            assert (gone.status_code, gone.json()["code"]) == (410, "feed.gone")
        assert (await client.get("/api/events", params={"after": "x"})).status_code == 422
        assert (await client.get("/api/events", headers={"last-event-id": "x"})).status_code == 400


async def test_signing_out_ends_open_event_streams_without_an_error(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"origin": running.url, "sec-fetch-site": "same-origin"}
    async with running.client(token=False) as client:
        assert (await client.post("/login", data={"token": running.token}, headers=headers)).status_code == 303
        after = running.holding.crib.feed.last
        with anyio.fail_after(10):
            async with client.stream("GET", "/api/events", params={"after": after}, headers=headers) as response:
                assert response.status_code == 200
                await client.post("/logout", headers=headers)
                await response.aread()  # raises if the stream is cut off
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_client_that_does_not_read_events_is_dropped(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home", WireLimits(stuck_seconds=0.3, head_seconds=0.3)) as running:
        feed = running.holding.crib.feed
        plain = raw_connection(running.port, receive_buffer=4096)
        try:
            head = (
                f"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1:{running.port}\r\nauthorization: Bearer {running.token}"
            )
            plain.send(f"{head}\r\n\r\n".encode())
            with anyio.fail_after(10):
                while not await _cut_off(plain):
                    feed.publish("notice", {"text": "a" * 100_000})
        finally:
            plain.close()
        async with running.client() as client:
            assert (await client.get("/api/tools")).status_code == 200


async def _cut_off(plain: socket.socket) -> bool:
    """Return whether the peer has closed this connection, without reading from it."""
    await anyio.sleep(0.01)
    try:
        plain.send(b"\r\n")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


async def test_settings_are_listed_with_their_origin(running: Running) -> None:
    async with running.client() as client:
        settings = (await client.get("/api/settings")).json()
    assert all(fits(SettingShape, setting) for setting in settings)
    [port] = [setting for setting in settings if setting["name"] == "port"]
    assert port["origin"] == "default"


async def test_audit_filter_takes_a_tool_with_or_without_its_server(running: Running) -> None:
    async with running.client() as client:
        await client.post("/api/tools/toolcrib/ping/call", json={"arguments": {}})
        for tool, found in {"ping": 2, "toolcrib/ping": 2, "other/ping": 0, "toolcrib/other": 0}.items():
            assert len((await client.get("/api/audit", params={"tool": tool})).json()) == found


async def test_audit_is_filtered_paged_and_verified(running: Running) -> None:
    async with running.client() as client:
        for _ in range(3):
            await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "hi"}})
        page = (await client.get("/api/audit", params={"limit": 2})).json()
        rest = (await client.get("/api/audit", params={"after": page[-1]["id"]})).json()
        future = (await client.get("/api/audit", params={"since": "2999-01-01T00:00:00Z"})).json()
        verified = (await client.get("/api/audit/verify")).json()
        wrong = await client.get("/api/audit", params={"phase": "x", "limit": 0, "since": "yesterday"})
    assert [record["id"] for record in [*page, *rest]] == [6, 5, 4, 3, 2, 1]
    assert future == []
    assert fits(VerificationShape, verified)
    assert (verified["ok"], verified["records"]) == (True, 6)
    assert [error["path"] for error in wrong.json()["errors"]] == ["query.phase", "query.since", "query.limit"]


async def test_login_link_signs_in_to_the_console_once(running: Running) -> None:
    async with running.client() as owner, running.client(token=False) as browser:
        link = (await owner.post("/api/login", json={})).json()["url"]
        assert (await browser.get("/")).status_code == 401
        answer = await browser.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        page = await browser.get("/")
        sheet = await browser.get(assets.url("console.css"))
        connect = await browser.get("/connect")
        assert (await browser.get("/api/tools")).status_code == 200
        assert (await browser.get("/mcp")).status_code == 401
        assert (await browser.post("/api/login")).status_code == 403
        assert (await browser.post("/api/login", headers={"origin": running.url})).status_code == 200
        async with running.client(token=False) as other:
            assert (await other.get(link)).status_code == 401
    assert page.status_code == sheet.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert sheet.headers["content-type"].startswith("text/css")
    assert running.holding.mcp_url in connect.text
    assert running.token not in page.text + connect.text


async def test_login_link_of_the_start_works(running: Running) -> None:
    async with running.client(token=False) as browser:
        assert (await browser.get(running.holding.login_url)).status_code == 303


async def test_call_from_the_console_is_recorded_with_its_source(running: Running) -> None:
    async with running.client(token=False) as browser:
        await browser.get(running.holding.login_url)
        called = await browser.post(
            "/api/tools/bench/broken/call", json={"arguments": {}}, headers={"origin": running.url}
        )
        [intent] = (await browser.get("/api/audit", params={"phase": "intent"})).json()
    assert called.status_code == 200
    assert (intent["door"], intent["principal"]["source"]) == ("console", "web")


_TESTED_ELSEWHERE = (
    "/api/agents", "/api/approvals", "/api/audit/", "/api/backups", "/api/bundles", "/api/connect", "/api/nodes",
    "/api/plugins", "/api/policy", "/api/projects", "/api/registry", "/api/resume-all", "/api/schedules",
    "/api/secrets", "/api/servers", "/api/sessions", "/api/stop-all", "/api/tokens", "/api/tools/cost/",
    "/api/tools/search",
)  # fmt: skip
"""Routes whose own tests create what they need."""


async def test_documented_routes_respond_as_documented(running: Running) -> None:
    async with running.client() as client:
        described = (await client.get("/api/openapi.json")).json()
        assert described["openapi"].startswith("3.1")
        values = {"{server}": "bench", "{tool}": "echo"}
        for template, operations in described["paths"].items():
            if template.startswith(_TESTED_ELSEWHERE) or template.endswith(("/accept", "/reject")):
                continue
            path = template
            for name, value in values.items():
                path = path.replace(name, value)
            for method, operation in operations.items():
                assert "default" in operation["responses"], template
                assert "422" not in operation["responses"], template
                if template == "/api/events":
                    async with client.stream("GET", path) as response:
                        assert response.status_code == 200
                    continue
                body = {"arguments": {"text": "hi"}} if "requestBody" in operation else None
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 200, (method, path)
    assert references(described) <= {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}


def references(value: Any) -> set[str]:
    """Return all references in an OpenAPI description."""
    return set(re.findall(r'"\$ref":"([^"]*)"', orjson.dumps(value).decode()))


async def test_unknown_route_or_method_is_a_problem_document(running: Running) -> None:
    async with running.client() as client:
        for method, path, status, code in [
            ("GET", "/nowhere", 404, "route.unknown"),
            ("GET", "/api/tools/", 404, "route.unknown"),
            ("GET", "/docs", 404, "route.unknown"),
            ("GET", "/redoc", 404, "route.unknown"),
            ("DELETE", "/api/tools", 405, "route.method"),
            ("OPTIONS", "/api/tools", 405, "route.method"),
            ("POST", "/healthz", 405, "route.method"),
        ]:
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (status, code), path
            assert answer.headers["content-type"] == "application/problem+json"
            assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_invalid_bytes_do_not_stop_the_crib(running: Running) -> None:
    async with connect(running.port) as stream:
        await stream.send(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert status_of(await read_until(stream, b"}")) == 400
    async with running.client() as client:
        assert (await client.get("/api/tools")).status_code == 200


async def test_concurrent_requests_get_their_own_responses(running: Running) -> None:
    answers: list[httpx2.Response] = []
    async with running.client() as client, anyio.create_task_group() as tasks:

        async def ask(number: int) -> None:
            body = {"arguments": {"text": f"<{number}>"}}
            answer = await client.post("/api/tools/bench/echo/call", json=body, timeout=60)
            assert answer.json()["content"][0]["text"] == f"<{number}>"
            answers.append(answer)

        for number in range(100):
            tasks.start_soon(ask, number)
    assert len(answers) == 100
