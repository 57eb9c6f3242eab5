"""The HTTP+SSE transport of the first specification: one stream for all that the server says, POSTs for the rest.

The stream's first event names the address for the POSTs. When the stream ends, the conversation ends.

Above: `greeting`. Below: `session`. It must never post to another origin than the stream's own.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin

from toolcrib.connect import wire
from toolcrib.connect.greet import Greeting, Hello
from toolcrib.connect.http.answers import Call, Refused
from toolcrib.connect.http.client import HttpClient, Unreachable
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.http.events import Event
from toolcrib.connect.http.failures import failure
from toolcrib.connect.http.requests import header_lines
from toolcrib.connect.http.session import SessionConversation
from toolcrib.connect.http.talk import MAY_REPEAT
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.urls import CheckedUrl, check_url
from toolcrib.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject


class SseConversation(SessionConversation):
    """A conversation over one stream."""

    def __init__(
        self, name: str, client: HttpClient, url: CheckedUrl, headers: Mapping[str, str], bearer: Bearer | None
    ) -> None:
        super().__init__(name, client, url, headers, bearer)
        self._endpoint: asyncio.Future[CheckedUrl] = asyncio.get_running_loop().create_future()

    async def initialize(self, hello: Hello) -> Greeting | None:
        """Open the stream, wait for the address to post to, then shake hands."""
        self._start(self._listen())
        self._posts = self._requests.at(await self._endpoint)
        return await super().initialize(hello)

    async def close(self) -> None:
        """End the stream, and with it the session."""
        self._endpoint.cancel()
        await super().close()

    async def _listen(self) -> None:
        try:
            await self._requests.stream(Call(on_event=self._event), b"")
        except (Refused, Broken, Unreachable) as error:
            self._over(self._told(error))
        except ToolcribError as error:
            self._over(error)
        else:
            self._over(failure(self.name, "server.ended", "ended its stream"))

    def _over(self, why: Exception) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(why)
            self._endpoint.exception()
        self._end(failure(self.name, "server.ended", f"has no stream any more ({why})"))

    def _event(self, event: Event) -> None:
        if event.kind != "endpoint" or self._endpoint.done():
            return
        url = self._requests.url
        try:
            # The owner's own definition named the stream; the address must be of that very origin.
            checked = check_url(
                urljoin(url.text, event.data.decode("utf-8", "replace").strip()), local_allowed=url.local
            )
        except InvalidRequest:
            checked = None
        if checked is not None and checked.origin == url.origin:
            self._endpoint.set_result(checked)
        else:
            raise Broken("server.protocol", "wants to be answered at another address than its own")

    async def _converse(
        self, call: Call, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = self._lines + header_lines(headers) if headers else self._lines
        assert call.id is not None
        body = wire.request(call.id, method, params)
        await self._posts.post(Call(), lines, body, may_repeat=method in MAY_REPEAT)
        return await call.wait()
