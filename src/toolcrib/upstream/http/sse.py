"""The HTTP+SSE transport of the first specification: one stream from the server, POSTs to it.

The stream's first event names the URL for the POSTs. The connection ends with the stream.

Must never post to another origin than the stream's own.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin

from toolcrib.base.network.urls import CheckedUrl, check_url
from toolcrib.model import jsonrpc
from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.upstream.handshake import ClientIntroduction, ServerIntroduction
from toolcrib.upstream.http.client import HttpClient, Unreachable
from toolcrib.upstream.http.events import ServerSentEvent
from toolcrib.upstream.http.failures import failure
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.requests import header_lines
from toolcrib.upstream.http.responses import HttpCall, RequestRefused
from toolcrib.upstream.http.session import SessionConnection
from toolcrib.upstream.http.web_connection import MAY_REPEAT
from toolcrib.upstream.oauth.token_refresh import Bearer


class SseConnection(SessionConnection):
    """A connection over one event stream."""

    def __init__(
        self, name: str, client: HttpClient, url: CheckedUrl, headers: Mapping[str, str], bearer: Bearer | None
    ) -> None:
        super().__init__(name, client, url, headers, bearer)
        self._endpoint: asyncio.Future[CheckedUrl] = asyncio.get_running_loop().create_future()

    async def initialize(self, hello: ClientIntroduction) -> ServerIntroduction | None:
        """Open the stream, wait for the URL to post to, then initialize."""
        self._start(self._listen())
        self._posts = self._requests.at(await self._endpoint)
        return await super().initialize(hello)

    async def close(self) -> None:
        """Close the stream, and with it the session."""
        self._endpoint.cancel()
        await super().close()

    async def _listen(self) -> None:
        try:
            await self._requests.stream(HttpCall(on_event=self._event), b"")
        except (RequestRefused, Broken, Unreachable) as error:
            self._over(self._error_for(error))
        except ToolcribError as error:
            self._over(error)
        else:
            self._over(failure(self.name, "server.ended", "ended its stream"))

    def _over(self, why: Exception) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(why)
            self._endpoint.exception()
        self._end(failure(self.name, "server.ended", f"has no stream any more ({why})"))

    def _event(self, event: ServerSentEvent) -> None:
        if event.kind != "endpoint" or self._endpoint.done():
            return
        url = self._requests.url
        try:
            # The owner's definition names the stream, so the endpoint must have the same origin.
            checked = check_url(
                urljoin(url.text, event.data.decode("utf-8", "replace").strip()), local_allowed=url.local
            )
        except InvalidRequest:
            checked = None
        if checked is not None and checked.origin == url.origin:
            self._endpoint.set_result(checked)
        else:
            raise Broken("server.protocol", "wants to be answered at another address than its own")

    async def _send_request(
        self, call: HttpCall, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = self._lines + header_lines(headers) if headers else self._lines
        assert call.id is not None
        body = jsonrpc.request(call.id, method, params)
        await self._posts.post(HttpCall(), lines, body, may_repeat=method in MAY_REPEAT)
        return await call.wait()
