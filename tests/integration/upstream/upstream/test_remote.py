"""Links to servers on the web: in both eras, through restarts of the server, and never to this crib itself."""

import asyncio
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.http.harness import (
    DISCOVERED,
    INITIALIZED,
    Request,
    answer,
    official,
    raw_server,
    result,
    running,
)
from integration.upstream.upstream.harness import Yard, call, entry, found, open_yard, text_of, upstream_spec
from toolcrib.base.processes.process import Processes
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerSpec
from toolcrib.model.sources import Client
from toolcrib.upstream.oauth.discovery import NO_DEMAND

pytestmark = pytest.mark.anyio

TOOLS: JsonObject = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


def web_spec(url: str, name: str = "web") -> ServerSpec:
    """The definition of a server at this address."""
    spec = upstream_spec("", name=name)
    return replace(spec, type="http", command=None, args=(), env={}, url=url)


@pytest.mark.parametrize("stateless", [True, False])
async def test_a_remote_server_is_used_like_any_other(yard: Yard, stateless: bool) -> None:
    server, _ = official()
    async with running(server.streamable_http_app(stateless_http=stateless)) as port:
        source = await yard.ready(web_spec(f"http://127.0.0.1:{port}/mcp"))
        assert {tool.ref.tool for tool in source.tools()} >= {"echo", "count"}
        assert text_of(await call(source, "echo", text="hello")) == "hello"
        assert source.status.era == "modern" and source.status.pid is None
        yard.pool.reconcile(None, found())


async def test_a_remote_server_of_a_session_asks_the_client_behind_a_call(yard: Yard) -> None:
    server, _ = official()
    asked = list[str]()

    async def ask(method: str, params: JsonObject) -> JsonObject:
        asked.append(method)
        return {"action": "accept", "content": {"name": "Anna"}}

    client = Client({"elicitation": {"form": {}}}, {"name": "ide", "version": "1"}, "one", ask)
    async with running(server.streamable_http_app()) as port:
        source = await yard.ready(replace(web_spec(f"http://127.0.0.1:{port}/mcp"), share="session"))
        assert text_of(await call(source, "ask", client)) == "Anna"
        assert asked == ["elicitation/create"]
        yard.pool.reconcile(None, found())


async def test_what_a_server_demands_of_a_session_is_known_until_the_next_sign_in(yard: Yard) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "tools/call":
            challenge = {"www-authenticate": 'Bearer error="invalid_token", scope="read write"'}
            writer.write(answer(b"", "401 Unauthorized", headers=challenge))
        elif request.method == "server/discover" or request.verb == "GET":
            writer.write(answer(b"", "405 Method Not Allowed"))
        else:
            said = {"initialize": INITIALIZED, "tools/list": TOOLS}.get(request.method or "")
            writer.write(result(request, said) if said is not None else answer(b"", "202 Accepted"))

    async with raw_server(script) as raw:
        spec = replace(web_spec(raw.url), share="session")
        source = await yard.ready(spec)
        assert (await call(source, "echo", Client({}, {"name": "ide", "version": "1"}, "one"))).is_error
        assert yard.pool.demand(entry(spec)).challenge.scopes == ("read", "write")
        await yard.pool.signed_in(entry(spec))
        assert yard.pool.demand(entry(spec)) == NO_DEMAND
        yard.pool.reconcile(None, found())


class Forgetful:
    """A legacy server that can forget its sessions."""

    def __init__(self) -> None:
        self.session = 1
        self.calls: list[str] = []

    def reply(self, request: Request) -> bytes:
        """Answer one request."""
        name = f"session-{self.session}"
        if request.method == "server/discover" or request.verb == "GET":
            return answer(b"", "405 Method Not Allowed")
        if request.method == "initialize":
            return result(request, INITIALIZED, {"mcp-session-id": name})
        if request.headers.get("mcp-session-id") != name:
            return answer(b"", "404 Not Found")
        if request.method == "tools/list":
            return result(request, TOOLS)
        if request.method == "tools/call":
            self.calls.append(name)
            return result(request, {"content": [{"type": "text", "text": name}]})
        return answer(b"", "202 Accepted")


async def test_a_session_that_the_server_forgot_is_opened_anew_and_the_call_is_repeated_once(yard: Yard) -> None:
    server = Forgetful()

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(server.reply(request))

    async with raw_server(script) as raw:
        source = await yard.ready(web_spec(raw.url))
        assert text_of(await call(source, "echo")) == "session-1"
        server.session = 2
        assert text_of(await call(source, "echo")) == "session-2"
        assert server.calls == ["session-1", "session-2"]
        assert raw.count("initialize") == 2
        await yard.until_state("web", "connected")
        yard.pool.reconcile(None, found())


async def test_a_remote_server_that_went_away_fails_its_calls_and_its_tools_stay_known(yard: Yard) -> None:
    app = official()[0].streamable_http_app(stateless_http=True)
    async with running(app) as port:
        spec = web_spec(f"http://127.0.0.1:{port}/mcp")
        source = await yard.ready(spec)
    gone = await call(source, "echo", text="x")
    assert gone.is_error and "cannot be reached" in text_of(gone)
    await yard.until_state("web", "failed")
    assert "cannot be reached" in source.status.sentence
    assert (source.status.is_setup, source.status.error_code) == (False, "server.unreachable")
    assert source.tools()


async def test_a_server_that_wants_a_sign_in_says_so_and_is_not_tried_again(yard: Yard) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", "401 Unauthorized", headers={"www-authenticate": "Bearer"}))

    async with raw_server(script) as raw:
        yard.pool.reconcile(None, found(web_spec(raw.url)))
        source = await yard.until_state("web", "needs_auth")
        assert source.status.action == "toolcrib mcp auth web"
        assert source.status.sentence.startswith("Authentication required")
        assert "Retrying automatically" not in source.status.sentence


@pytest.mark.parametrize("challenge", [None, "Bearer", 'Bearer realm="api", error="invalid_token"'])
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
async def test_refused_static_token_is_not_a_missing_sign_in(yard: Yard, header: str, challenge: str | None) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        asked = {"www-authenticate": challenge} if challenge else {}
        writer.write(answer(b"", "401 Unauthorized", headers=asked))

    async with raw_server(script) as raw:
        spec = replace(web_spec(raw.url), headers={header: "Bearer out-of-date-token"})
        yard.pool.reconcile(None, found(spec))
        source = await yard.until_state("web", "failed")
        assert source.status.sentence.startswith('Server "web" refused the token in its definition (HTTP 401).')
        assert "out-of-date" not in source.status.sentence
        assert (source.status.is_setup, source.status.error_code) == (True, "server.token_refused")
        assert source.status.action == "toolcrib mcp get web"


async def test_a_server_that_says_where_to_sign_in_beside_a_key_wants_a_sign_in(yard: Yard) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        where = f'Bearer resource_metadata="{raw.url}/.well-known/oauth-protected-resource"'
        writer.write(answer(b"", "401 Unauthorized", headers={"www-authenticate": where}))

    async with raw_server(script) as raw:
        yard.pool.reconcile(None, found(replace(web_spec(raw.url), headers={"X-API-Key": "a-key"})))
        source = await yard.until_state("web", "needs_auth")
        assert source.status.action == "toolcrib mcp auth web"


async def test_calls_side_by_side_all_say_that_the_sign_in_is_over(yard: Yard) -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        match request.method:
            case "server/discover":
                writer.write(result(request, DISCOVERED))
            case "tools/list":
                writer.write(result(request, TOOLS))
            case "tools/call" if raw.count("tools/call") < 3:
                return  # the others come first to what all of them would
            case _:
                writer.write(answer(b"", "401 Unauthorized", headers={"www-authenticate": "Bearer"}))

    told = list[str]()

    async def tell() -> None:
        told.append(text_of(await call(source, "echo")))

    async with raw_server(script) as raw:
        source = await yard.ready(web_spec(raw.url))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(tell)
        await yard.until_state("web", "needs_auth")
        assert len(told) == 3
        assert all("Authentication required" in each and "toolcrib mcp auth web" in each for each in told), told


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_this_crib_itself_is_never_connected_to(processes: Processes, tmp_path: Path, host: str) -> None:
    spec = web_spec(f"http://{host}:4242/mcp?cwd=/x")
    async with open_yard(processes, tmp_path, own_url="http://127.0.0.1:4242") as yard:
        yard.pool.reconcile(None, found(spec))
        source = await yard.until_state("web", "failed")
        assert "this crib itself" in source.status.sentence
        assert (await yard.pool.test(entry(spec))).state == "failed"
