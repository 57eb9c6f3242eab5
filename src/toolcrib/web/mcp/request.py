"""One request in progress: its principal, its view and the channel back to the client.

Must never pass a client's claims on as ours: a server learns only what the client declared.
"""

from collections.abc import Mapping
from functools import partial

from toolcrib.model.json import Json, JsonObject, digest, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    KEY,
    LOG_LEVEL_KEY,
    META,
    OUR_KEY,
    VERSION_KEY,
    Era,
)
from toolcrib.model.sources import Ask, Client, ReportProgress
from toolcrib.web.mcp.client_requests import can_be_asked, is_wanted
from toolcrib.web.mcp.exchange import ResponseWriter
from toolcrib.web.mcp.jsonrpc import Message, RequestId, RpcError
from toolcrib.web.mcp.sessions import McpSession
from toolcrib.web.mcp.views import McpView

_OF_ONE_ROUND = frozenset({META, "inputResponses", "requestState"})
"""Params that differ when a client repeats a request with answers."""
_OF_THIS_HOP = frozenset({VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken"})
"""`_meta` keys of most requests that concern only the client and the crib."""
_ON_A_CALL = frozenset({"notifications/message", "notifications/progress"})
"""Notifications that may precede a result in the modern era; changes have their own stream."""


class McpRequest:
    """One request of a client that the endpoint answers itself."""

    __slots__ = (
        "era",
        "exchange",
        "headers",
        "lacks",
        "mcp_view",
        "message",
        "parked_as",
        "principal",
        "progress_token",
        "result_tokens",
        "session",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        principal: Principal,
        mcp_view: McpView,
        era: Era,
        message: Message,
        headers: Mapping[bytes, bytes],
        exchange: ResponseWriter,
        session: McpSession | None = None,
        result_tokens: int = 0,
    ) -> None:
        self.result_tokens = result_tokens
        """The largest result that the client receives whole; 0 means no limit."""
        self.principal = principal
        self.mcp_view = mcp_view
        self.era: Era = era
        self.message = message
        self.headers = headers
        self.exchange = exchange
        self.session = session
        self.progress_token: RequestId | None = message.progress_token
        self.lacks: RpcError | None = None
        """The error for a capability that a server needed and the client did not declare. Raised if the call fails."""
        self.parked_as: str | None = None
        """The id of the parked call, if it waits for its client's answers."""
        self.state: str | None = None
        """The unsealed state that the client returned to the server."""

    @property
    def bound_to(self) -> Json:
        """The binding of sealed state: the principal, the view and the content of this request."""
        params = self.message.params
        asked = digest({key: value for key, value in params.items() if key not in _OF_ONE_ROUND})
        return [self.principal.to_json(), self.mcp_view.key, self.message.method, asked]

    @property
    def progress(self) -> ReportProgress | None:
        """The progress callback, or None if the client did not request progress."""
        return None if self.progress_token is None else self._report

    def client(self, ask: Ask | None) -> Client:
        """Return what the client can do for a server; `ask` sends questions in the modern era."""
        meta = self.message.meta
        rest: JsonObject = {}
        if not meta.keys() <= _OF_THIS_HOP:
            ours = (KEY, OUR_KEY)
            rest = {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(ours)}
        session = self.session
        if session is not None:
            may_ask = self.exchange.may_stream and can_be_asked(session.capabilities)
            return Client(
                capabilities=session.capabilities,
                info=session.info,
                session=session.id,
                ask=partial(session.ask, self.exchange) if may_ask else None,
                tell=self._tell,
                log_level=session.log_level,
                meta=rest,
            )
        capabilities: Json = meta.get(CAPABILITIES_KEY, {})
        info: Json = meta.get(CLIENT_INFO_KEY)
        responses: Json = self.message.params.get("inputResponses")
        may_ask = can_be_asked(capabilities)
        return Client(
            capabilities=capabilities,
            info=info if is_object(info) else None,
            # The modern era has no sessions. The calls of one client are the closest equivalent.
            session=f"modern {digest([self.principal.to_json(), info])}" if may_ask else None,
            ask=ask if may_ask else None,
            tell=self._tell,
            log_level=meta.get(LOG_LEVEL_KEY),
            answers_by_retry=True,
            responses=responses if is_object(responses) else None,
            state=self.state,
            meta=rest,
        )

    async def _tell(self, method: str, params: JsonObject) -> None:
        """Forward a server's notification, if this client accepts it here."""
        if self.era == "modern" and method not in _ON_A_CALL:
            return
        level: Json = self.session.log_level if self.session is not None else self.message.meta.get(LOG_LEVEL_KEY)
        if method != "notifications/message" or is_wanted(params, level):
            await self.exchange.notify(method, params)

    async def _report(self, progress: float, total: float | None = None, text: str | None = None) -> None:
        params: JsonObject = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if text is not None:
            params["message"] = text
        await self.exchange.notify("notifications/progress", params)
