"""A typed client of a crib's REST interface.

Answers are the JSON of the public shapes, passed on whole, so that a newer crib's fields are not lost on the way.
Failures come back as the errors they were: problem+json becomes the class that the table of codes names.

Above: `cli` and end-to-end tests. Below: `errors`, `model`. It must never send the token anywhere but to the address it
was given: no redirects, no proxies, nothing from the environment.
"""

import json
import ssl
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Self
from urllib.parse import quote

import httpx2
import orjson

from toolcrib.errors import CODES, ToolcribError, Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Source
from toolcrib.model.tools import ToolRef

Param = str | int | list[str] | None

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_QUIET_STREAM_SECONDS = 60.0


class Client:
    """One asker at one crib. Every request says where it comes from: its source and its working directory."""

    def __init__(self, url: str, token: str, *, source: Source | None = None, cwd: str | None = None) -> None:
        self.url = url.rstrip("/")
        known = {"source": source, "cwd": cwd}
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            params={name: value for name, value in known.items() if value is not None},
            headers={"authorization": f"Bearer {token}", "accept": "application/json"},
            timeout=httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            # Plain HTTP on loopback. A context without authorities costs nothing to make, and trusts nobody.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def health(self) -> JsonObject:
        """What the crib says of itself to anybody."""
        return await self._ask("GET", "/healthz")

    async def tools(
        self,
        *,
        server: str | None = None,
        agent: str | None = None,
        source: str | None = None,
        query: str | None = None,
    ) -> list[JsonObject]:
        """The tools as that principal sees them; with `query` the fitting ones, best first."""
        return await self._ask("GET", "/api/tools", {"server": server, "agent": agent, "source": source, "q": query})

    async def tool_problems(self) -> list[JsonObject]:
        """What is wrong with servers that could not offer all their tools."""
        return await self._ask("GET", "/api/tools/problems")

    async def tool(self, ref: ToolRef) -> JsonObject:
        """One tool."""
        return await self._ask("GET", _tool_path(ref))

    async def call(self, ref: ToolRef, arguments: JsonObject) -> JsonObject:
        """Call a tool through the gate. The wait has no bound of its own: the gate's and the tool's count."""
        return await self._ask("POST", f"{_tool_path(ref)}/call", body={"arguments": arguments}, patient=True)

    async def servers(self, *, cwd: str | None = None) -> list[JsonObject]:
        """Every server that is defined somewhere, as seen from a directory."""
        return await self._ask("GET", "/api/servers", {"cwd": cwd})

    async def server_problems(self) -> list[JsonObject]:
        """What is wrong with whole files."""
        return await self._ask("GET", "/api/servers/-/problems")

    async def server(self, name: str, *, cwd: str | None = None) -> JsonObject:
        """One server in full."""
        return await self._ask("GET", _server_path(name), {"cwd": cwd})

    async def add_server(self, body: JsonObject) -> JsonObject:
        """Add a server."""
        return await self._ask("POST", "/api/servers", body=body)

    async def remove_server(self, name: str, *, in_client: bool = False, dry_run: bool = False) -> JsonObject:
        """Take a server off the list."""
        return await self._ask("DELETE", _server_path(name), {"inClient": in_client, "dryRun": dry_run})

    async def switch_server(
        self, name: str, enabled: bool, *, in_client: bool = False, dry_run: bool = False
    ) -> JsonObject:
        """Turn a server on or off."""
        path = f"{_server_path(name)}/{'enable' if enabled else 'disable'}"
        return await self._ask("POST", path, {"inClient": in_client, "dryRun": dry_run})

    async def trust_server(self, name: str, digest: str | None = None) -> JsonObject:
        """Agree to a server as it was shown."""
        return await self._ask("POST", f"{_server_path(name)}/trust", {"digest": digest})

    async def untrust_server(self, name: str) -> JsonObject:
        """Take the agreement back."""
        return await self._ask("POST", f"{_server_path(name)}/untrust")

    async def trust_path(self, path: str, digests: Sequence[str] | None = None) -> list[JsonObject]:
        """Agree to the servers of a project or a file as they were shown; without digests, only see them."""
        asked = {"dryRun": True} if digests is None else {"digests": list(digests)}
        return await self._ask("POST", "/api/servers/trust", body={"path": path, **asked})

    async def untrust_path(self, path: str) -> list[JsonObject]:
        """Take back everything that was agreed to of a project or a file."""
        return await self._ask("POST", "/api/servers/untrust", body={"path": path})

    async def import_servers(self, names: Sequence[str], *, dry_run: bool) -> JsonObject:
        """Take servers of other tools over."""
        return await self._ask("POST", "/api/servers/import", body={"names": list(names), "dryRun": dry_run})

    async def export_servers(self, client: str, names: Sequence[str]) -> JsonObject:
        """Servers as a file of that client."""
        return await self._ask("GET", "/api/servers/-/export", {"client": client, "name": list(names)})

    async def write_export(self, client: str, names: Sequence[str], *, scope: str, dry_run: bool) -> JsonObject:
        """Write servers into that client's own file."""
        body = {"client": client, "names": list(names), "scope": scope, "dryRun": dry_run}
        return await self._ask("POST", "/api/servers/export", body=body)

    async def undo_change(self) -> JsonObject:
        """Take back the last change of a file."""
        return await self._ask("POST", "/api/servers/undo", body={})

    async def recognise_servers(self, text: str) -> JsonObject:
        """The servers in a pasted text."""
        return await self._ask("POST", "/api/servers/recognise", body={"text": text})

    async def settings(self) -> list[JsonObject]:
        """The settings the crib runs with."""
        return await self._ask("GET", "/api/settings")

    async def audit(self, **filters: str | int | None) -> list[JsonObject]:
        """Audit records that pass the filters."""
        return await self._ask("GET", "/api/audit", filters)

    async def verify_audit(self) -> JsonObject:
        """Check the whole chain of records, however long that takes."""
        return await self._ask("GET", "/api/audit/verify", patient=True)

    async def login(self) -> str:
        """A fresh link that opens the console once."""
        answer = await self._ask("POST", "/api/login", body={})
        return str(answer["url"])

    async def events(self, after: int | None = None) -> AsyncIterator[Event]:
        """Events of the host after this number, from now on if None, until the crib ends the stream."""
        timeout = httpx2.Timeout(_QUIET_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        params = _given({"after": after})
        with _reported():
            async with self._http.sse("/api/events", params=params, timeout=timeout) as stream:
                if not stream.response.is_success:
                    _raise_problem(stream.response.status_code, await stream.response.aread())
                async for event in stream:
                    data = _parsed(event.data)
                    yield Event(int(event.id), str(data.pop("at")), event.event, _without(data, "seq", "kind"))

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Param] | None = None,
        *,
        body: Json = None,
        patient: bool = False,
    ) -> Json:
        """One request and its JSON. `patient` waits for the answer without a bound."""
        # The standard encoder: unlike the fast one it takes whole numbers of any size, and the crib should judge them.
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(None if patient else _ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        with _reported():
            response = await self._http.request(
                method, path, params=_given(params or {}), content=content, headers=headers, timeout=timeout
            )
        if not response.is_success:
            _raise_problem(response.status_code, response.content)
        return _parsed(response.content)


def _tool_path(ref: ToolRef) -> str:
    return f"/api/tools/{quote(ref.server, safe='')}/{quote(ref.tool, safe='')}"


def _server_path(name: str) -> str:
    return f"/api/servers/{quote(name, safe='')}"


def _given(params: Mapping[str, Param]) -> dict[str, str | int | list[str]]:
    return {name: value for name, value in params.items() if value is not None}


def _without(data: JsonObject, *names: str) -> JsonObject:
    return {name: value for name, value in data.items() if name not in names}


def _parsed(content: bytes | str) -> Json:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Unavailable("internal", "What answered at the crib's address did not send JSON.") from error


def _raise_problem(status: int, content: bytes) -> NoReturn:
    """Raise the failure that the crib reported, as the class that its code has in the table."""
    try:
        shape: Json = orjson.loads(content)
    except orjson.JSONDecodeError:
        shape = None
    match shape:
        case {"code": str(code), "detail": str(detail), **rest}:
            hint = rest.get("hint")
            hint = hint if isinstance(hint, str) else None
            raised: type[ToolcribError] = CODES[code].raised_as if code in CODES else Unavailable
            raise raised(code if code in CODES else "internal", detail, hint)
        case _:
            raise Unavailable("internal", f"The crib answered with status {status} and no reason.")


@contextmanager
def _reported() -> Generator[None]:
    """Failures of the transport as ours: `crib.unreachable` never reached the crib, `crib.closed` may have."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Unavailable("crib.unreachable", "The running crib does not answer.") from error
    except httpx2.TransportError as error:
        message = f"The crib ended before it had answered ({type(error).__name__})."
        raise Unavailable("crib.closed", message, "Whether a call ran is in `toolcrib audit`.") from error
