"""Notices about approvals to browsers of the owner, also while the console is closed (Web Push, RFC 8030).

A subscription belongs to one signed-in browser. It ends when this browser signs out, when the owner removes it or has a
new token, when the push service no longer knows it, and after thirty days in which the browser did not open the page
of pending approvals. Subscriptions and the sending key are stored in the database, encrypted: all nodes with the same
node secret use them.

A message names the server, the tool and a page of the console, never the arguments, and holds no credential. Must never
log the address of a subscription, which allows to send to it.
"""

import hashlib
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio

from toolcrib.agents.notify.delivery import TIMEOUT, WAITS
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import Web
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject, as_object, as_text, dumps, loads
from toolcrib.model.text import visible
from toolcrib.store.engine import Store
from toolcrib.store.sealed_values import add_sealed, load_all_sealed, load_sealed, save_sealed

if TYPE_CHECKING:
    import httpx2

    from toolcrib.agents.notify.web_push import PushKey
else:
    httpx2 = lazy_module("httpx2")

MOST_SUBSCRIPTIONS: Final = 32
"""Maximum browsers; the one that was not seen for the longest time is dropped."""
KEPT: Final = timedelta(days=30)
"""The time after which a browser that did not open the page of pending approvals gets no more messages."""
WAITING_PAGE: Final = "/waiting"
_KEY_ROW: Final = "push-key"
_ROWS: Final = "push-to "
_LONGEST_NAME: Final = 200
_LONGEST_BROWSER: Final = 300
_SHORTEST_LIFE: Final = 60
_MAX_ANSWER: Final = 64 * 1024
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_PASSES: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)

logger = logging.getLogger(__name__)


class Seals(Protocol):
    """Encrypts stored values. `name` is the name of the row that a value belongs to."""

    def seal(self, name: str, plain: bytes) -> bytes:
        """Return the encrypted value."""
        ...

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return the value. Raises a `ConfigError` if it was sealed with another key."""
        ...


OpenSeals: TypeAlias = Callable[[], Awaitable[Seals]]
"""Returns the seals. Raises a `ConfigError` while their key cannot be read, such as from a locked keyring."""


@dataclass(frozen=True, slots=True)
class PushSubscription:
    """The subscription of one browser. `login` is its sign-in, `owner` identifies the owner's token it was made with.

    `key` is the public sending key that the browser accepts.
    """

    endpoint: str
    point: str
    auth: str
    key: str
    browser: str
    login: str
    owner: str
    seen_at: datetime

    @property
    def id(self) -> str:
        """The public id: a digest of the address."""
        return subscription_id(self.endpoint)

    def to_json(self) -> JsonObject:
        """Return the public representation, without address and keys."""
        service = check_url(self.endpoint, local_allowed=True).host
        return {"id": self.id, "browser": self.browser, "service": service, "seenAt": _text(self.seen_at)}


def subscription_id(endpoint: str) -> str:
    """Return the id of the subscription with this address."""
    return hashlib.sha256(endpoint.encode()).hexdigest()[:32]


class PushNotices:
    """Subscriptions of browsers, and the messages to them.

    `open_seals` is None if the database is shared and there is no node secret: other cribs could not decrypt the rows.
    `subject` is the contact that push services get. `local_allowed` permits push services on this machine, for tests.
    """

    def __init__(self, store: Store, web: Web, open_seals: OpenSeals | None, owner: str, subject: str) -> None:
        self._store = store
        self._web = web
        self._open_seals = open_seals
        self._owner = owner
        self._subject = subject
        self.local_allowed = False

    async def public_key(self) -> str:
        """Return the public key that browsers subscribe with. It is created at first use. Raises `notify.no_push`."""
        return (await self._key()).public

    async def subscribe(self, shape: JsonObject, *, browser: str, login: str) -> PushSubscription:
        """Store the subscription of a browser, as `PushSubscription.toJSON()` of the browser returns it.

        Raises `notify.invalid`, `notify.no_push`, `url.refused`.
        """
        keys = as_object(shape.get("keys")) or {}
        point, auth = as_text(keys.get("p256dh")) or "", as_text(keys.get("auth")) or ""
        endpoint = self._check_endpoint(shape.get("endpoint"))
        _crypto().BrowserKeys.of_text(point, auth)
        key = await self.public_key()
        now, browser = datetime.now(UTC), visible(browser[:_LONGEST_BROWSER])
        subscription = PushSubscription(endpoint, point, auth, key, browser, login, self._owner, now)
        await self._save(subscription)
        for each in (await self.list())[MOST_SUBSCRIPTIONS:]:
            await self._remove(each.id)
        return subscription

    async def renew(self, shape: JsonObject, *, browser: str, login: str) -> PushSubscription:
        """Store a known subscription again, with the time and its sign-in. Raises `notify.unknown` for others."""
        id = subscription_id(self._check_endpoint(shape.get("endpoint")))
        if not any(each.id == id for each in await self.list()):
            raise _unknown()
        return await self.subscribe(shape, browser=browser, login=login)

    async def list(self) -> list[PushSubscription]:
        """Return all subscriptions, the newest first. Those that ended are removed.

        None without a node secret: those in a shared database belong to nodes that have one.
        """
        rows = await load_all_sealed(self._store, _ROWS) if self._open_seals is not None else {}
        if not rows:
            return []
        found: list[PushSubscription] = []
        seals = await self._seals()
        for name, sealed in rows.items():
            subscription = _read(seals, name, sealed)
            if subscription is None or not self._is_valid(subscription):
                await save_sealed(self._store, name, None)
            else:
                found.append(subscription)
        return sorted(found, key=lambda each: each.seen_at, reverse=True)

    async def remove(self, id: str) -> None:
        """Remove a subscription. Raises `notify.unknown`."""
        if await load_sealed(self._store, f"{_ROWS}{id}") is None:
            raise _unknown()
        await self._remove(id)

    async def remove_of_login(self, login: str) -> None:
        """Remove the subscriptions of a browser that signed out."""
        for each in await self.list():
            if each.login == login:
                await self._remove(each.id)

    async def send(self, asked: JsonObject, is_reminder: bool) -> None:
        """Send a message about a pending approval to all browsers. `asked` is the data of its event."""
        subscriptions = await self.list()
        if not subscriptions:
            return
        key = await self._key()
        subscriptions = [each for each in subscriptions if each.key == key.public]
        title = "Approval still needed" if is_reminder else "Approval needed"
        names = (visible(str(asked[each]))[:_LONGEST_NAME] for each in ("server", "tool"))
        id: str = asked["approvalId"]
        payload = dumps({"title": title, "body": "/".join(names), "tag": id, "url": f"{WAITING_PAGE}#ask-{id}"})
        life = int((datetime.fromisoformat(asked["expiresAt"]) - datetime.now(UTC)).total_seconds())
        headers = {"ttl": str(max(life, _SHORTEST_LIFE)), "urgency": "high", "topic": id[:32]}
        async with anyio.create_task_group() as tasks:
            for each in subscriptions:
                tasks.start_soon(self._deliver, each, key, payload, headers)

    async def _deliver(self, to: PushSubscription, key: "PushKey", payload: bytes, headers: Mapping[str, str]) -> None:
        """Send a message, and repeat it while the push service fails. A subscription that is gone is removed."""
        service = check_url(to.endpoint, local_allowed=True).origin
        problem = ""
        for wait in (*WAITS, None):
            try:
                status = await self._post(to, key, payload, headers)
            except (httpx2.HTTPError, ToolcribError, TimeoutError) as error:
                problem = type(error).__name__
            else:
                if status in _GONE:
                    await self._remove(to.id)
                    return
                if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                    return
                problem = f"status {status}"
                if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSES:
                    break
            if wait is not None:
                await anyio.sleep(wait)
        logger.warning("The push service %s did not accept a notice: %s.", service, problem)

    async def _post(self, to: PushSubscription, key: "PushKey", payload: bytes, headers: Mapping[str, str]) -> int:
        crypto = _crypto()
        origin = check_url(to.endpoint, local_allowed=self.local_allowed).origin
        body: bytes = crypto.encrypt(payload, crypto.BrowserKeys.of_text(to.point, to.auth))
        sent = {
            **headers,
            "content-type": "application/octet-stream",
            "content-encoding": "aes128gcm",
            "authorization": key.authorization(origin, self._subject, time.time()),
        }
        with anyio.fail_after(TIMEOUT):
            async with self._web.client(local_allowed=self.local_allowed, max_body=_MAX_ANSWER) as client:
                return (await client.post(to.endpoint, content=body, headers=sent)).status_code

    def _check_endpoint(self, endpoint: Json) -> str:
        if not isinstance(endpoint, str):
            raise InvalidRequest("notify.invalid", "The push subscription has no address.")
        checked = check_url(endpoint, local_allowed=self.local_allowed)
        if checked.scheme != "https" and not self.local_allowed:
            raise InvalidRequest("notify.invalid", "The address of a push service must start with https.")
        return checked.text

    def _is_valid(self, subscription: PushSubscription) -> bool:
        return subscription.owner == self._owner and datetime.now(UTC) - subscription.seen_at < KEPT

    async def _key(self) -> "PushKey":
        """Return the sending key. A key that can no longer be decrypted is replaced: browsers subscribe again."""
        seals = await self._seals()
        stored = await load_sealed(self._store, _KEY_ROW)
        if stored is not None and (text := _open_seal(seals, _KEY_ROW, stored)) is not None:
            return _crypto().PushKey.of_text(text.decode())
        if stored is not None:
            await save_sealed(self._store, _KEY_ROW, None)
        key: PushKey = _crypto().PushKey.new()
        if await add_sealed(self._store, _KEY_ROW, seals.seal(_KEY_ROW, key.text.encode())):
            return key
        return await self._key()  # another node was first

    async def _save(self, each: PushSubscription) -> None:
        fields: JsonObject = {
            "endpoint": each.endpoint,
            "p256dh": each.point,
            "auth": each.auth,
            "key": each.key,
            "browser": each.browser,
            "login": each.login,
            "owner": each.owner,
            "seenAt": _text(each.seen_at),
        }
        name = f"{_ROWS}{each.id}"
        await save_sealed(self._store, name, (await self._seals()).seal(name, dumps(fields)))

    async def _remove(self, id: str) -> None:
        await save_sealed(self._store, f"{_ROWS}{id}", None)

    async def _seals(self) -> Seals:
        if self._open_seals is None:
            raise Conflict("notify.no_push", "Push messages on a shared database need a node secret.")
        return await self._open_seals()


def _read(seals: Seals, name: str, sealed: bytes) -> PushSubscription | None:
    """Return the subscription of a row, or None if it was sealed with another key."""
    if (opened := _open_seal(seals, name, sealed)) is None:
        return None
    fields: JsonObject = loads(opened)
    return PushSubscription(
        endpoint=fields["endpoint"],
        point=fields["p256dh"],
        auth=fields["auth"],
        key=fields["key"],
        browser=fields["browser"],
        login=fields["login"],
        owner=fields["owner"],
        seen_at=datetime.fromisoformat(fields["seenAt"]),
    )


def _open_seal(seals: Seals, name: str, sealed: bytes) -> bytes | None:
    try:
        return seals.open(name, sealed)
    except ConfigError:
        return None


def _crypto() -> Any:
    """Return the module that encrypts. Loading its library takes 20 ms, which a starting crib need not spend."""
    return importlib.import_module("toolcrib.agents.notify.web_push")


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _unknown() -> NotFound:
    return NotFound("notify.unknown", "This browser is not subscribed to notices.")
