"""MCP sessions of the legacy era: their ids, their clients' declarations, and their limits.

The SDK's server opens and ends sessions; this module keeps what their calls need. A question to the client is sent on
the stream of its call and answered by a separate request. Its id is unguessable and valid only in its session.

A session id is sealed state: it carries the client's declarations, bound to the credential and address. A crib can
therefore restore a session after a restart, or after ending it to make room. An id that its client ended (`DELETE`) is
never restored.

Invariant: a principal that opens too many sessions loses its own idle ones. It costs another principal a session only
at the total limit, and only if the other has more. Named tokens never keep the owner from opening a session.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import anyio

from toolcrib.gate.principals import OWNER_KEY
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import ANSWER_WAIT, Message, RequestId, capability_for
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolcrib.model.sources import ProtocolError
from toolcrib.web.mcp.ended_sessions import EndedSessions
from toolcrib.web.mcp.sealed_state import BrokenSeal, StateSeal, TooMuchState
from toolcrib.web.mcp.views import McpView

MOST = 1_000
"""Open MCP sessions in total; the owner may exceed it."""
MOST_OF_ONE = 100
"""Open MCP sessions per principal."""
ID_HOLDS = 30 * 86_400.0
"""Seconds that a session id is valid."""
LONGEST_ID = 4_096
"""Maximum length of a session id. Capabilities that do not fit are reduced to their names."""
DEFAULT_LEVEL = "info"
"""The log level of a session whose client did not set one."""

_FAREWELL = 1.0
_LONGEST_NAME = 200
_ASKED_OF_CLIENTS = ("roots", "sampling", "elicitation")
"""Capabilities that a restored session needs."""


def owner_of(key: str, principal: Principal, mcp_view: McpView) -> str:
    """Return the owner of a session: the credential that opened it and the view it was opened at.

    The mode is not part of it, so a session survives a change of its agent's mode.
    """
    return hashlib.sha256(
        repr((key, principal.agent, principal.session, principal.cwd, mcp_view.key)).encode()
    ).hexdigest()


class ClientStream(Protocol):
    """The stream of a call, which carries messages ahead of the result."""

    async def request(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Send a request to the client."""
        ...

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification to the client."""
        ...


class McpSession:
    """A legacy client's declarations at the start of its session, and its open questions."""

    def __init__(self, session_id: str, hello: JsonObject, *, is_restored: bool = False, tag: str = "") -> None:
        """`tag` names this node of a cluster in the ids of questions."""
        self._tag = f"{tag}-" if tag else ""
        capabilities, info = hello.get("capabilities"), hello.get("clientInfo")
        self.id = session_id
        self.calls = 0
        """Calls in flight."""
        self.is_restored = is_restored
        """Whether lists may have changed since the client last saw them."""
        self.capabilities: JsonObject = capabilities if is_object(capabilities) else {}
        self.info: JsonObject | None = info if is_object(info) else None
        self.log_level = DEFAULT_LEVEL
        self._open_questions: dict[str, asyncio.Future[JsonObject]] = {}

    async def ask(self, stream: ClientStream, method: str, params: JsonObject) -> JsonObject:
        """Ask the client a server's question, on the stream of its call."""
        if capability_for(method) not in self.capabilities:
            raise ProtocolError(METHOD_NOT_FOUND, f"The client does not support {method}.")
        request_id = f"{self._tag}{secrets.token_hex(12)}"
        answer = self._open_questions[request_id] = asyncio.get_running_loop().create_future()
        try:
            await stream.request(request_id, method, params)
            async with asyncio.timeout(ANSWER_WAIT):
                return await answer
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, f"The client did not answer within {ANSWER_WAIT:g} s.") from None
        finally:
            del self._open_questions[request_id]
            if not answer.done() or answer.cancelled():
                await _withdraw_question(stream, request_id)

    def take(self, message: Message) -> None:
        """Handle a response of the client. A response to no open question is dropped."""
        answer = self._open_questions.get(message.id) if isinstance(message.id, str) else None
        reply = message.reply
        if answer is None or answer.done() or reply is None:
            return
        if "result" in reply:
            answer.set_result(reply["result"])
        else:
            error = reply["error"]
            code, text = error.get("code"), error.get("message")
            answer.set_exception(
                ProtocolError(code if isinstance(code, int) else INTERNAL_ERROR, str(text), error.get("data"))
            )


async def _withdraw_question(stream: ClientStream, request_id: str) -> None:
    """Notify the client that its answer is no longer needed."""
    with anyio.move_on_after(_FAREWELL, shield=True):
        await stream.notify("notifications/cancelled", {"requestId": request_id})


class McpSessions:
    """The open MCP sessions by the key of their credential, least recently used first."""

    def __init__(
        self,
        seal: StateSeal,
        ended: EndedSessions,
        *,
        most: int = MOST,
        most_of_one: int = MOST_OF_ONE,
        node: str | None = None,
    ) -> None:
        """`node` is this node of a cluster, which the ids of its sessions name."""
        self._node = node
        self._seal = seal
        self._ended = ended
        self._most = most
        self._most_of_one = most_of_one
        self._open: dict[str, McpSession] = {}
        self._keys: dict[str, str] = {}
        self._by_key: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def new_id(self, hello: JsonObject, bound_to: Json) -> str:
        """Return an id for a session that begins with this `initialize`."""
        version, capabilities, info = (hello.get(key) for key in ("protocolVersion", "capabilities", "clientInfo"))
        state: JsonObject = {
            "nonce": secrets.token_hex(16),
            "protocolVersion": version if isinstance(version, str) else "",
            "capabilities": capabilities if is_object(capabilities) else {},
            "clientInfo": _short_info(info),
        }
        if self._node is not None:
            state["node"] = self._node
        try:
            sealed = self._seal.close(state, bound_to, seconds=ID_HOLDS)
        except TooMuchState:
            sealed = ""
        if not 0 < len(sealed) <= LONGEST_ID:
            declared = [name for name in _ASKED_OF_CLIENTS if name in state["capabilities"]]
            state["capabilities"] = {name: {} for name in declared}
            sealed = self._seal.close(state, bound_to, seconds=ID_HOLDS)
        return sealed

    def hello_of(self, session_id: str, bound_to: Json) -> JsonObject | None:
        """Return the `initialize` params sealed in a session id, or None if it is invalid or has ended."""
        if len(session_id) > LONGEST_ID or session_id in self._ended:
            return None
        try:
            return self._seal.open(session_id, bound_to)
        except BrokenSeal:
            return None

    def get(self, session_id: str | None) -> McpSession:
        """Return the session with this id, or an empty one if it is unknown."""
        return self._open.get(session_id or "") or McpSession(session_id or "", {})

    def of(self, key: str) -> tuple[str, ...]:
        """Return the ids of one principal's sessions."""
        return tuple(self._by_key.get(key, ()))

    def begin(self, session: McpSession, key: str) -> None:
        """Add a session of the principal with this key."""
        self._open[session.id] = session
        self._keys[session.id] = key
        self._by_key.setdefault(key, OrderedDict())[session.id] = None

    def touch(self, session_id: str) -> None:
        """Mark a session as most recently used."""
        key = self._keys.get(session_id)
        if key is not None:
            self._by_key[key].move_to_end(session_id)

    def forget(self, session_id: str) -> None:
        """Remove a session that is no longer open. Its id can still be restored. Idempotent."""
        self._open.pop(session_id, None)
        key = self._keys.pop(session_id, None)
        if key is not None:
            own = self._by_key[key]
            del own[session_id]
            if not own:
                del self._by_key[key]

    def end(self, session_id: str) -> None:
        """Record that the client ended this session, so that its id is never restored."""
        self._ended.add(session_id, ID_HOLDS)

    def surplus(self, key: str, is_busy: Callable[[str], bool]) -> str | None:
        """Return the session to end before this principal may open another, or None if there is room.

        Raises `Unavailable` (`crib.busy`) if all candidates are busy.
        """
        own = self._by_key.get(key, OrderedDict())
        candidates: list[OrderedDict[str, None]] = []
        if len(own) >= self._most_of_one:
            candidates = [own]
        elif len(self._open) >= self._most and key != OWNER_KEY:
            largest = max(self._by_key.values(), key=len)
            candidates = [largest, own] if len(largest) > len(own) else [own]
        if not candidates:
            return None
        for sessions in candidates:
            for session_id in sessions:
                if not self._open[session_id].calls and not is_busy(session_id):
                    return session_id
        raise Unavailable("crib.busy", f"{len(own)} MCP sessions of this token are in use.")


def _short_info(info: Json) -> JsonObject:
    """Return a client's name and version, truncated."""
    parts = info if is_object(info) else {}
    return {key: str(parts.get(key, ""))[:_LONGEST_NAME] for key in ("name", "version")}
