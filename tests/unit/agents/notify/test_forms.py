"""Webhook notices in the forms that Slack, Teams and ntfy document."""

from typing import Any

import pytest

from toolcrib.agents.notify.delivery import checked_webhook
from toolcrib.agents.notify.forms import FORMS
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.notices import OwnerNotice

LINK = "https://crib.example/approve/a.b"
HOSTILE = "shop/sell: <!channel> <https://evil.example|here> [x](https://evil.example) & *now*"
NOTICE = OwnerNotice(f"{HOSTILE}\n{LINK}", "Approval needed", "warning")


def form(name: str, url: str = "https://hooks.example/x") -> tuple[str, Any]:
    return FORMS[name](url, NOTICE, {"link": LINK})


def test_slack_message_has_one_link_and_escapes_the_callers_markup() -> None:
    url, body = form("slack")
    assert url == "https://hooks.example/x"
    assert body["unfurl_links"] is False and body["text"] == "Approval needed"
    texts = [block["text"]["text"] for block in body["blocks"]]
    assert {(block["type"], block["text"]["type"]) for block in body["blocks"]} == {("section", "mrkdwn")}
    assert texts[-1] == f"<{LINK}|Open the approval>"
    assert all("<" not in text for text in texts[:-1]) and "&lt;!channel&gt;" in texts[1]


def test_teams_message_is_an_adaptive_card_with_one_action() -> None:
    _, body = form("teams")
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert [each["type"] for each in card["body"]] == ["TextBlock", "TextBlock"]
    assert "[x](" not in card["body"][1]["text"]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open the approval", "url": LINK}]


def test_ntfy_message_is_posted_to_the_parent_of_its_topic() -> None:
    url, body = form("ntfy", "https://ntfy.example/base/alerts_1?auth=x")
    assert url == "https://ntfy.example/base/?auth=x"
    assert (body["topic"], body["title"], body["click"]) == ("alerts_1", "Approval needed", LINK)
    assert LINK not in body["message"] and 1 <= body["priority"] <= 5


@pytest.mark.parametrize(
    "config", [{"url": "https://x.example/", "form": "ntfy"}, {"url": "https://x.example", "form": 1}]
)
def test_invalid_webhook_form_is_rejected(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        checked_webhook(config, is_local_allowed=False)
