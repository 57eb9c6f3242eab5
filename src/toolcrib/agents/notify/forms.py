"""The forms of webhook notices: the crib's own, and those that Slack, Teams and ntfy document.

Text of callers is escaped for the receiver's markup, so that it cannot add links or mentions. Pure.
"""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.notices import OwnerNotice

Form = Callable[[str, OwnerNotice, JsonObject], tuple[str, JsonObject]]
"""Returns the address and the body of a notice for a webhook's URL. The last argument has further fields."""
DEFAULT_FORM: Final = "json"
_LONGEST_SECTION: Final = 3_000
"""Characters that Slack accepts in one block of text."""
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()#+\-!|<>~])")
_TOPIC: Final = re.compile(r"[-_A-Za-z0-9]{1,64}")


def _json(url: str, notice: OwnerNotice, more: JsonObject) -> tuple[str, JsonObject]:
    """Return all fields. Mattermost shows `text`, Discord shows `content`."""
    text = f"{notice.title}: {notice.message}" if notice.title else notice.message
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return url, {**notice.to_json(), **more, "at": at, "text": text, "content": text[:2000]}


def _slack(url: str, notice: OwnerNotice, more: JsonObject) -> tuple[str, JsonObject]:
    """Return a message of an incoming webhook, with a link that Slack does not open for a preview."""
    text = html.escape(_words(notice, more), quote=False)
    blocks: list[JsonObject] = [_section(f"*{html.escape(notice.title, quote=False)}*")] if notice.title else []
    blocks += [_section(text[:_LONGEST_SECTION])] if text else []
    if "link" in more:
        blocks.append(_section(f"<{more['link']}|Open the approval>"))
    return url, {
        "text": html.escape(notice.title, quote=False) or text,
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _section(text: str) -> JsonObject:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _teams(url: str, notice: OwnerNotice, more: JsonObject) -> tuple[str, JsonObject]:
    """Return a message with an adaptive card, as the webhook trigger of a workflow expects it."""
    title: list[JsonObject] = [_block(notice.title) | {"weight": "Bolder"}] if notice.title else []
    card: JsonObject = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [*title, *(_block(line) for line in _words(notice, more).splitlines() if line)],
    }
    if "link" in more:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the approval", "url": more["link"]}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return url, {"type": "message", "attachments": [attachment]}


def _block(text: str) -> JsonObject:
    return {"type": "TextBlock", "text": _MARKDOWN.sub(r"\\\1", text), "wrap": True}


def _ntfy(url: str, notice: OwnerNotice, more: JsonObject) -> tuple[str, JsonObject]:
    """Return a message for ntfy, which takes JSON at the address above the topic. Raises `notify.invalid`."""
    parts = urlsplit(url)
    base, _, topic = parts.path.rstrip("/").rpartition("/")
    if _TOPIC.fullmatch(unquote(topic)) is None:
        hint = "Give https://ntfy.example.net/TOPIC."
        raise InvalidRequest("notify.invalid", "The URL of an ntfy webhook must end with a topic.", hint)
    body: JsonObject = {"topic": unquote(topic), "title": notice.title, "message": _words(notice, more)}
    if "link" in more:
        body |= {"priority": 4, "tags": ["warning"], "click": more["link"]}
    return urlunsplit((parts.scheme, parts.netloc, f"{base}/", parts.query, "")), body


def _words(notice: OwnerNotice, more: JsonObject) -> str:
    """Return the message without the link, which these forms have in a place of its own."""
    return notice.message.removesuffix(str(more.get("link", ""))).rstrip()


FORMS: Final[dict[str, Form]] = {DEFAULT_FORM: _json, "slack": _slack, "teams": _teams, "ntfy": _ntfy}
