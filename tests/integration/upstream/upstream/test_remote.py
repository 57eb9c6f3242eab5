"""HTTP upstreams in both eras: restarts, sign-in, and refusal to connect the crib to itself."""

import asyncio
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.http.harness import (
    DISCOVERED,
    INITIALIZED,
    Request,
    http_response,
    official,
    raw_server,
    result_response,
    serve_app,
)
from integration.upstream.upstream.harness import (
    PoolHarness,
    call,
    discovery_of,
    entry,
    open_harness,
    text_of,
    upstream_spec,
)
from toolcrib.base.processes.process import Processes
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerSpec
from toolcrib.model.sources import Client
from toolcrib.upstream.oauth.demand import NO_DEMAND

pytestmark = pytest.mark.anyio

TOOLS: JsonObject = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


def web_spec(url: str, name: str = "web") -> ServerSpec:
    """Return the definition of a server at this address."""
    spec = upstream_spec("", name=name)
    return replace(spec, type="http", command=None, args=(), env={}, url=url)


@pytest.mark.parametrize("stateless", [True, False])
async def test_remote_server_lists_and_calls_tools(harness: PoolHarness, stateless: bool) -> None:
    server, _ = official()
    async with serve_app(server.streamable_http_app(stateless_http=stateless)) as port:
        source = await harness.connect(web_spec(f"http://127.0.0.1:{port}/mcp"))
        assert {tool.ref.tool for tool in source.tools()} >= {"echo", "count"}
        assert text_of(await call(source, "echo", text="hello")) == "hello"
        assert source.status.era == "modern" and source.status.pid is None
        harness.pool.reconcile(None, discovery_of())


async def test_remote_server_of_a_session_elicits_from_the_client_of_the_call(harness: PoolHarness) -> None:
    server, _ = official()
    methods = list[str]()

    async def ask(method: str, params: JsonObject) -> JsonObject:
        methods.append(method)
        return {"action": "accept", "content": {"name": "Anna"}}

    client = Client({"elicitation": {"form": {}}}, {"name": "ide", "version": "1"}, "one", ask)
    async with serve_app(server.streamable_http_app()) as port:
        source = await harness.connect(replace(web_spec(f"http://127.0.0.1:{port}/mcp"), share="session"))
        assert text_of(await call(source, "ask", client)) == "Anna"
        assert methods == ["elicitation/create"]
        harness.pool.reconcile(None, discovery_of())


async def test_auth_challenge_of_a_session_is_kept_until_the_next_sign_in(harness: PoolHarness) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "tools/call":
            challenge = {"www-authenticate": 'Bearer error="invalid_token", scope="read write"'}
            writer.write(http_response(b"", "401 Unauthorized", headers=challenge))
        elif request.method == "server/discover" or request.verb == "GET":
            writer.write(http_response(b"", "405 Method Not Allowed"))
        else:
            results = {"initialize": INITIALIZED, "tools/list": TOOLS}.get(request.method or "")
            writer.write(
                result_response(request, results) if results is not None else http_response(b"", "202 Accepted")
            )

    async with raw_server(script) as raw:
        spec = replace(web_spec(raw.url), share="session")
        source = await harness.connect(spec)
        assert (await call(source, "echo", Client({}, {"name": "ide", "version": "1"}, "one"))).is_error
        assert harness.pool.demand(entry(spec)).challenge.scopes == ("read", "write")
        await harness.pool.signed_in(entry(spec))
        assert harness.pool.demand(entry(spec)) == NO_DEMAND
        harness.pool.reconcile(None, discovery_of())


class ForgetfulServer:
    """A legacy server that can forget its MCP sessions."""

    def __init__(self) -> None:
        self.session = 1
        self.calls: list[str] = []

    def reply(self, request: Request) -> bytes:
        """Answer a request."""
        name = f"session-{self.session}"
        if request.method == "server/discover" or request.verb == "GET":
            return http_response(b"", "405 Method Not Allowed")
        if request.method == "initialize":
            return result_response(request, INITIALIZED, {"mcp-session-id": name})
        if request.headers.get("mcp-session-id") != name:
            return http_response(b"", "404 Not Found")
        if request.method == "tools/list":
            return result_response(request, TOOLS)
        if request.method == "tools/call":
            self.calls.append(name)
            return result_response(request, {"content": [{"type": "text", "text": name}]})
        return http_response(b"", "202 Accepted")


async def test_forgotten_mcp_session_is_reopened_and_the_call_repeated_once(
    harness: PoolHarness,
) -> None:
    server = ForgetfulServer()

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(server.reply(request))

    async with raw_server(script) as raw:
        source = await harness.connect(web_spec(raw.url))
        assert text_of(await call(source, "echo")) == "session-1"
        server.session = 2
        assert text_of(await call(source, "echo")) == "session-2"
        assert server.calls == ["session-1", "session-2"]
        assert raw.count("initialize") == 2
        await harness.until_state("web", "connected")
        harness.pool.reconcile(None, discovery_of())


async def test_unreachable_server_fails_its_calls_and_keeps_its_tools(harness: PoolHarness) -> None:
    app = official()[0].streamable_http_app(stateless_http=True)
    async with serve_app(app) as port:
        spec = web_spec(f"http://127.0.0.1:{port}/mcp")
        source = await harness.connect(spec)
    gone = await call(source, "echo", text="x")
    assert gone.is_error and "cannot be reached" in text_of(gone)
    await harness.until_state("web", "failed")
    assert "cannot be reached" in source.status.sentence
    assert (source.status.is_setup, source.status.error_code) == (False, "server.unreachable")
    assert source.tools()


async def test_server_that_needs_a_sign_in_is_not_retried(harness: PoolHarness) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", "401 Unauthorized", headers={"www-authenticate": "Bearer"}))

    async with raw_server(script) as raw:
        harness.pool.reconcile(None, discovery_of(web_spec(raw.url)))
        source = await harness.until_state("web", "needs_auth")
        assert source.status.action == "toolcrib mcp auth web"
        assert source.status.sentence.startswith("Authentication required")
        assert "Retrying automatically" not in source.status.sentence


@pytest.mark.parametrize("challenge", [None, "Bearer", 'Bearer realm="api", error="invalid_token"'])
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
async def test_refused_static_token_is_not_a_missing_sign_in(
    harness: PoolHarness, header: str, challenge: str | None
) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        headers = {"www-authenticate": challenge} if challenge else {}
        writer.write(http_response(b"", "401 Unauthorized", headers=headers))

    async with raw_server(script) as raw:
        spec = replace(web_spec(raw.url), headers={header: "Bearer out-of-date-token"})
        harness.pool.reconcile(None, discovery_of(spec))
        source = await harness.until_state("web", "failed")
        assert source.status.sentence.startswith('Server "web" refused the token in its definition (HTTP 401).')
        assert "out-of-date" not in source.status.sentence
        assert (source.status.is_setup, source.status.error_code) == (True, "server.token_refused")
        assert source.status.action == "toolcrib mcp get web"


async def test_key_and_sign_in_metadata_need_a_sign_in(harness: PoolHarness) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        where = f'Bearer resource_metadata="{raw.url}/.well-known/oauth-protected-resource"'
        writer.write(http_response(b"", "401 Unauthorized", headers={"www-authenticate": where}))

    async with raw_server(script) as raw:
        harness.pool.reconcile(None, discovery_of(replace(web_spec(raw.url), headers={"X-API-Key": "a-key"})))
        source = await harness.until_state("web", "needs_auth")
        assert source.status.action == "toolcrib mcp auth web"


async def test_concurrent_calls_all_report_the_expired_sign_in(harness: PoolHarness) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        match request.method:
            case "server/discover":
                writer.write(result_response(request, DISCOVERED))
            case "tools/list":
                writer.write(result_response(request, TOOLS))
            case "tools/call" if raw.count("tools/call") < 3:
                return  # the others must arrive before the refusal
            case _:
                writer.write(http_response(b"", "401 Unauthorized", headers={"www-authenticate": "Bearer"}))

    answers = list[str]()

    async def call_echo() -> None:
        answers.append(text_of(await call(source, "echo")))

    async with raw_server(script) as raw:
        source = await harness.connect(web_spec(raw.url))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call_echo)
        await harness.until_state("web", "needs_auth")
        assert len(answers) == 3
        assert all("Authentication required" in each and "toolcrib mcp auth web" in each for each in answers), answers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_pool_never_connects_to_its_own_crib(processes: Processes, tmp_path: Path, host: str) -> None:
    spec = web_spec(f"http://{host}:4242/mcp?cwd=/x")
    async with open_harness(processes, tmp_path, own_url="http://127.0.0.1:4242") as harness:
        harness.pool.reconcile(None, discovery_of(spec))
        source = await harness.until_state("web", "failed")
        assert "this crib itself" in source.status.sentence
        assert (await harness.pool.test(entry(spec))).state == "failed"
