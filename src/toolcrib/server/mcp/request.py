"""One request under way: who asks, through which face, and the way back to the client while it is answered.

Above: the endpoint makes one per request, the methods answer it. Below: the exchange. It must never hand a client's own
words on as ours: what a server learns of the client is what the client declared.
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
from toolcrib.server.mcp.asking import can_be_asked, is_wanted
from toolcrib.server.mcp.exchange import Exchange
from toolcrib.server.mcp.face import Face
from toolcrib.server.mcp.rpc import Message, RequestId, RpcError
from toolcrib.server.mcp.sessions import Session

_OF_ONE_ROUND = frozenset({META, "inputResponses", "requestState"})
"""Params that differ when a client asks the same again with answers."""
_OF_THIS_HOP = frozenset({VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken"})
"""What is said in `_meta` of most requests, and belongs to the way between the client and us."""
_ON_A_CALL = frozenset({"notifications/message", "notifications/progress"})
"""What may come ahead of an answer in the modern era; changes have a stream of their own there."""


class Request:
    """One request of a client that is answered here."""

    __slots__ = (
        "era", "exchange", "face", "headers", "lacks", "message", "parked_as", "principal", "progress_token", "session",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        principal: Principal,
        face: Face,
        era: Era,
        message: Message,
        headers: Mapping[bytes, bytes],
        exchange: Exchange,
        session: Session | None = None,
    ) -> None:
        self.principal = principal
        self.face = face
        self.era: Era = era
        self.message = message
        self.headers = headers
        self.exchange = exchange
        self.session = session
        self.progress_token: RequestId | None = message.progress_token
        self.lacks: RpcError | None = None
        """Says what a server wanted to ask and the client did not declare; it counts if the call fails over it."""
        self.parked_as: str | None = None
        """Names the call if it waits for its client's answers: its first request is answered then."""
        self.state: str | None = None
        """What the server gave the client to bring back, with the seal taken off."""

    @property
    def bound_to(self) -> Json:
        """What sealed state holds for: the asker, the face, and this very request."""
        params = self.message.params
        asked = digest({key: value for key, value in params.items() if key not in _OF_ONE_ROUND})
        return [self.principal.to_json(), self.face.key, self.message.method, asked]

    @property
    def progress(self) -> ReportProgress | None:
        """Where progress is reported, if the client asked for it."""
        return None if self.progress_token is None else self._report

    def client(self, ask: Ask | None) -> Client:
        """What the client can do for a server; `ask` is how one of the modern era is asked."""
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
            # There are no sessions in this era. Calls of one client are as close to one conversation as it comes.
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
        """Pass a server's notification on, if it is one that this client hears here."""
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
