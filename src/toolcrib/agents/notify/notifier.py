"""The notifier: publishes notices on the feed, sends them to the owner's channels, and stores these channels.

Notices that other parts publish on the feed are forwarded to the channels in the background, one at a time.

Must never reveal a channel's secret. A failing channel never loses a notice: it is published on the feed first.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import anyio

from toolcrib.agents.notify.delivery import (
    checked_webhook,
    desktop_command,
    post,
    post_repeatedly,
    show,
    shown_webhook,
)
from toolcrib.agents.notify.forms import DEFAULT_FORM
from toolcrib.base.feed import Feed
from toolcrib.base.masking.urls import mask_url
from toolcrib.base.network.web import Web
from toolcrib.base.settings import Environment
from toolcrib.model.errors import InvalidRequest, NotFound, ToolcribError
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.notices import Channel, ChannelKind, OwnerNotice
from toolcrib.store.channels import delete_channel, load_channels, save_channel
from toolcrib.store.engine import Store

LONGEST_MESSAGE: Final = 4_000
LONGEST_TITLE: Final = 200
_MOST_WAITING: Final = 100
_TRIAL: Final = OwnerNotice("This is a test notice from Toolcrib.", "Toolcrib")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of delivering a notice to one channel."""

    channel: ChannelKind
    error: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public JSON representation; `error` only if there is one."""
        shape: JsonObject = {"channel": self.channel, "delivered": self.error is None}
        return shape if self.error is None else {**shape, "error": self.error}


class Notifier:
    """Sends notices to the owner. Run `follow` for as long as the feed is open."""

    def __init__(
        self, store: Store, feed: Feed, web: Web, environment: Environment, webhook_secret: str | None = None
    ) -> None:
        self._webhook_secret = webhook_secret
        self._store = store
        self._feed = feed
        self._web = web
        self._environment = environment
        self._is_telling = False
        self._queued: deque[OwnerNotice] = deque(maxlen=_MOST_WAITING)
        self._news = anyio.Event()

    async def follow(self) -> None:
        """Forward notices published by other parts to the channels until cancelled; drops the oldest when flooded."""
        stop = self._feed.listen(self._on_event)
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                while self._queued:
                    await self._deliver_queued(self._queued.popleft())
        finally:
            stop()

    def _on_event(self, event: Event) -> None:
        if event.kind == "notice" and not self._is_telling:
            self._queued.append(OwnerNotice.of_json(event.data))
            self._news.set()

    async def _deliver_queued(self, notice: OwnerNotice) -> None:
        try:
            await self._deliver(notice)
        except ToolcribError as error:
            logger.warning("A notice is shown in the console only: %s", error)

    async def notify(self, notice: OwnerNotice) -> Sequence[Delivered]:
        """Send a notice; return the result for each channel. Raises `notify.invalid`."""
        if not notice.message.strip() or len(notice.message) > LONGEST_MESSAGE:
            raise InvalidRequest("notify.invalid", f"A message must have 1 to {LONGEST_MESSAGE} characters.")
        if len(notice.title) > LONGEST_TITLE:
            raise InvalidRequest("notify.invalid", f"A title must have at most {LONGEST_TITLE} characters.")
        self._is_telling = True
        try:
            event = self._feed.publish("notice", notice.to_json())
        finally:
            self._is_telling = False
        # Secrets are masked in the published event; channels get the same text.
        return await self._deliver(OwnerNotice.of_json(event.data))

    async def send(self, notice: OwnerNotice, more: JsonObject) -> Sequence[Delivered]:
        """Send a notice to the channels only, repeated while a webhook fails. `more` are more fields for webhooks."""
        return await self._deliver(notice, more)

    async def channels(self) -> list[JsonObject]:
        """Return the configured channels without their secrets."""
        return [_channel_json(channel) for channel in await load_channels(self._store)]

    async def set(self, kind: ChannelKind, config: JsonObject, *, by: str, is_local_allowed: bool) -> JsonObject:
        """Set or replace a channel. Raises `notify.invalid`, `url.refused`.

        `is_local_allowed` permits addresses on this machine or network; only for addresses that a person entered.
        """
        channel = Channel(kind, self._validate(kind, config, is_local_allowed), by, datetime.now(UTC))
        await save_channel(self._store, channel)
        return _channel_json(channel)

    def check(self, kind: ChannelKind, config: JsonObject) -> str:
        """Describe a channel for the approval request. Raises like `set`."""
        kept = self._validate(kind, config, is_local_allowed=False)
        return f"the webhook {mask_url(kept['url'])}" if kind == "webhook" else "the desktop"

    async def remove(self, kind: ChannelKind) -> None:
        """Remove a channel; raises `notify.unknown`."""
        if not await delete_channel(self._store, kind):
            raise _unknown(kind)

    async def test(self, kind: ChannelKind) -> None:
        """Send a test notice to one channel. Raises `notify.unknown`, `notify.failed`."""
        found = next((channel for channel in await load_channels(self._store) if channel.kind == kind), None)
        if found is None:
            raise _unknown(kind)
        await self._reach(found, _TRIAL)

    async def _deliver(self, notice: OwnerNotice, more: JsonObject | None = None) -> Sequence[Delivered]:
        channels = await load_channels(self._store)
        delivered: dict[ChannelKind, Delivered] = {}

        async def one(channel: Channel) -> None:
            try:
                await self._reach(channel, notice, more)
                delivered[channel.kind] = Delivered(channel.kind)
            except ToolcribError as error:
                logger.warning("Could not deliver a notice to the %s: %s", channel.kind, error)
                delivered[channel.kind] = Delivered(channel.kind, error.message)

        async with anyio.create_task_group() as tasks:
            for channel in channels:
                tasks.start_soon(one, channel)
        return tuple(delivered[channel.kind] for channel in channels)

    async def _reach(self, channel: Channel, notice: OwnerNotice, more: JsonObject | None = None) -> None:
        if channel.kind == "webhook":
            send = post if more is None else post_repeatedly
            await send(self._web, channel.config, notice, more or {}, self._webhook_secret)
        else:
            await show(self._environment, notice)

    def _validate(self, kind: ChannelKind, config: JsonObject, is_local_allowed: bool) -> JsonObject:
        if kind == "webhook":
            return checked_webhook(config, is_local_allowed=is_local_allowed)
        if config:
            raise InvalidRequest("notify.invalid", "The desktop channel takes no config.", "Leave the config out.")
        if desktop_command(self._environment) is None:
            hint = "Install notify-send, or use a webhook."
            raise InvalidRequest(
                "notify.invalid", "No program for desktop notifications was found on this machine.", hint
            )
        return {}


def _channel_json(channel: Channel) -> JsonObject:
    shape: JsonObject = {
        "channel": channel.kind,
        "setBy": channel.set_by,
        "setAt": channel.set_at.isoformat(timespec="seconds"),
    }
    if channel.kind != "webhook":
        return shape
    return {**shape, "url": shown_webhook(channel.config), "form": channel.config.get("form", DEFAULT_FORM)}


def _unknown(kind: str) -> NotFound:
    return NotFound("notify.unknown", f"No {kind} is set for notices.")
