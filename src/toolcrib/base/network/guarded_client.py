"""The guarded httpx2 client.

Every connection resolves the name, checks each address and connects to a checked one. The name is not resolved again,
so a changed DNS answer has no effect. Proxy variables are ignored, only `get` follows redirects, and response bodies
are limited, also after decompression.

Must never connect to an unchecked address or send a header meant for one origin to another.
"""

import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import cast

import anyio
import httpcore2
import httpx2

from toolcrib.base.network.dial import AddressCheck, address_check, allowed_addresses, first_connected
from toolcrib.base.network.urls import check_url, is_public
from toolcrib.base.network.web import Web
from toolcrib.model.version import __version__

CLIENT_TIMEOUT = httpx2.Timeout(30, read=300)
DOCUMENT_TIMEOUT = httpx2.Timeout(10)
DOCUMENT_SECONDS = 30.0
MAX_REDIRECTS = 5

_PIECE = 64 * 1024
_NETWORK_FAILURES = (httpcore2.NetworkError, httpcore2.TimeoutException)
_KEPT_ACROSS_ORIGINS = frozenset({"host", "accept", "accept-encoding", "user-agent", "connection"})
_MOST_CONNECTIONS = 256
_KEPT_CONNECTIONS = 20
_KEPT_SECONDS = 60.0


def sockets() -> httpcore2.AsyncNetworkBackend:
    """Return the backend that opens real sockets. (The library declares this class twice, once without anyio.)"""
    return cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())


def guarded_client(
    web: Web, local_allowed: bool, headers: Mapping[str, str] | None, timeout: httpx2.Timeout | None, max_body: int
) -> httpx2.AsyncClient:
    """Return a client that checks every address; see `Web.client`."""
    own = {"user-agent": f"toolcrib/{__version__}", "accept-encoding": "identity"}
    return httpx2.AsyncClient(
        transport=_GuardedTransport(web, local_allowed, max_body),
        headers={**own, **(headers or {})},
        timeout=timeout or CLIENT_TIMEOUT,
        trust_env=False,
        follow_redirects=False,
    )


async def get(
    client: httpx2.AsyncClient,
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float = DOCUMENT_SECONDS,
    elsewhere: httpx2.AsyncClient | None = None,
) -> httpx2.Response:
    """Get a document. Follows a few redirects, checks each one, and sends no secrets to another origin.

    With `elsewhere`, a redirect to another host is requested with that client.
    """
    sender = client
    request = client.build_request("GET", url, headers=dict(headers or {}))
    for _ in range(MAX_REDIRECTS + 1):
        with anyio.fail_after(seconds):
            response = await sender.send(request, follow_redirects=False)
        following = response.next_request
        if following is None:
            return response
        if following.url.origin != request.url.origin:
            for name in [name for name in following.headers if name.lower() not in _KEPT_ACROSS_ORIGINS]:
                del following.headers[name]
        if elsewhere is not None and (following.url.host, following.url.port) != (request.url.host, request.url.port):
            sender = elsewhere
        request = following
    raise httpx2.TooManyRedirects("The server redirects too often.", request=request)


def answered_locally(response: httpx2.Response) -> bool:
    """Return whether the responding server is on this machine or network, by the address that was dialled."""
    stream: httpcore2.AsyncNetworkStream | None = response.extensions.get("network_stream")
    peer: tuple[str, int] | None = stream.get_extra_info("server_addr") if stream is not None else None
    return peer is not None and not is_public(peer[0])


class _GuardedTransport(httpx2.AsyncBaseTransport):
    """Checks each request, sends it over connections to checked addresses, and limits the response."""

    def __init__(self, web: Web, local_allowed: bool, max_body: int) -> None:
        self._web = web
        self._local_allowed = local_allowed
        self._max_body = max_body
        self._pools: dict[str, _Pool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        checked = check_url(str(request.url), local_allowed=self._local_allowed)
        pool = self._pools.get(checked.scheme) or await self._open_pool(checked.scheme)
        response = await pool.handle_async_request(request)
        return _limit_body(request, response, self._max_body)

    async def _open_pool(self, scheme: str) -> "_Pool":
        context = await self._web.ssl_context() if scheme == "https" else None
        check = address_check(scheme, local_allowed=self._local_allowed)
        return self._pools.setdefault(scheme, _Pool(self._web, context, check))

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


class _Pool(httpx2.AsyncHTTPTransport):
    """Connection pool for one scheme. Created here because the base class has no parameter for the network backend."""

    def __init__(self, web: Web, context: ssl.SSLContext | None, check: AddressCheck) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_MOST_CONNECTIONS,
            max_keepalive_connections=_KEPT_CONNECTIONS,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=_PinnedNetwork(web, check),
        )


class _PinnedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens sockets to checked addresses only."""

    def __init__(self, web: Web, check: AddressCheck) -> None:
        self._resolve = web.resolve
        self._network = web.network or sockets()
        self._check = check

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the interface of the library
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        async def connect(address: str) -> httpcore2.AsyncNetworkStream:
            return await self._network.connect_tcp(address, port, socket_options=socket_options)

        try:
            with anyio.fail_after(timeout):
                addresses = await allowed_addresses(self._resolve, host, port, self._check)
                return await first_connected(addresses, connect, httpcore2.AsyncNetworkStream.aclose, _NETWORK_FAILURES)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} could not be reached in time.") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


def _limit_body(request: httpx2.Request, response: httpx2.Response, limit: int) -> httpx2.Response:
    """Return the response with a limited body.

    A requested event stream has no limit; its reader limits each event instead.
    """
    events = "text/event-stream"
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", "x-gzip", "deflate"):
        raise httpx2.RemoteProtocolError(f"The response has an unsupported encoding: {packed[:40]!r}.")
    headers = response.headers
    if packed != "identity":
        dropped = ("content-encoding", "content-length")
        headers = httpx2.Headers([(name, value) for name, value in headers.multi_items() if name not in dropped])
    endless = kind == events and events in request.headers.get("accept", "")
    body = _Body(response.stream, None if endless else limit, packed)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class _Body(httpx2.AsyncByteStream):
    """A body that is decompressed in small pieces and counted."""

    def __init__(self, stream: httpx2.AsyncByteStream | httpx2.SyncByteStream, limit: int | None, packed: str) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)
        self._stream = stream
        self._limit = limit
        self._unpack = _whole if packed == "identity" else _unpacker(packed)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            for piece in self._unpack(chunk):
                total += len(piece)
                if self._limit is not None and total > self._limit:
                    raise httpx2.RemoteProtocolError(f"The response is larger than {self._limit} bytes.")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _whole(chunk: bytes) -> Iterator[bytes]:
    yield chunk


def _unpacker(packed: str) -> Callable[[bytes], Iterator[bytes]]:
    decoder = zlib.decompressobj(zlib.MAX_WBITS if packed == "deflate" else zlib.MAX_WBITS | 16)

    def unpack(chunk: bytes) -> Iterator[bytes]:
        try:
            while piece := decoder.decompress(chunk, _PIECE):
                yield piece
                chunk = decoder.unconsumed_tail
        except zlib.error as error:
            raise httpx2.DecodingError(f"The response cannot be decompressed: {error}.") from error

    return unpack
