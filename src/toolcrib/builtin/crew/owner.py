"""Crew tools for the owner: notify, ask, and configure notification channels.

A question waits for a person in the console, CLI or API. Channels send data off this machine: an agent can propose one,
but a person must confirm it in every mode.

Must never accept a program's answer as a person's.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NotRequired

import anyio
from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.notify.notifier import Notifier
from toolcrib.agents.sessions.sessions import Sessions
from toolcrib.builtin.caller import Calling, is_scheduled, reporting_progress, speaker
from toolcrib.model.errors import Denied, InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.notices import ChannelKind, Level, OwnerNotice
from toolcrib.model.principals import Principal
from toolcrib.tools import Context, Inject, tool

LONGEST_ASK: Final = 240
"""Maximum minutes to wait for an answer."""
USUAL_ASK: Final = 10
MOST_OPTIONS: Final = 10
LONGEST_QUESTION: Final = 4_000
_GRACE: Final = 60.0
_YES: Final = "Yes"
_NO: Final = "No"

logger = logging.getLogger(__name__)


class NoticeSent(TypedDict):
    """The answer to `crib_notify_owner`."""

    shown: bool
    channels: list[JsonObject]


class OwnerReply(TypedDict):
    """The answer to `crib_ask_owner`."""

    answer: str


class Configured(TypedDict):
    """The answer to `crib_configure_notifications`."""

    channels: list[JsonObject]
    tested: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Person:
    """Access to the owner of the crib."""

    notifier: Notifier
    sessions: Sessions
    is_person: Callable[[Principal], bool]

    async def ask(self, context: Context, question: str, options: Sequence[str], minutes: float) -> str:
        """Ask and wait for the answer; raise `question.timeout`."""
        asker = context.principal
        asked: JsonObject = {"question": question, "header": speaker(asker)}
        if options:
            asked["options"] = [{"label": option} for option in options]
        answers: Mapping[str, str] = {}
        async with anyio.create_task_group() as beside, reporting_progress(context, "Waiting: toolcrib approvals list"):
            beside.start_soon(self._announce, asker, question)
            answers = await self.sessions.ask(asker, [asked], context.call_id, minutes * 60)
            beside.cancel_scope.cancel()
        if not answers:
            raise Unavailable("question.timeout", f"No person answered within {minutes:g} minutes.")
        return answers[question]

    async def _announce(self, asker: Principal, question: str) -> None:
        """Notify the owner that a question is pending."""
        words = f"{question[:1000]}\nAnswer in the console, or see `toolcrib approvals list`."
        try:
            await self.notifier.notify(_notice(asker, words, f"{speaker(asker)} asks"))
        except ToolcribError as error:  # the question is open anyway
            logger.warning("Could not notify the owner of a question of %s: %s", speaker(asker), error)

    async def agree(self, context: Context, change: str) -> None:
        """Ask a person to confirm a change, unless a person makes it. Raises `notify.refused`, `question.timeout`."""
        if self.is_person(context.principal):
            return
        if is_scheduled(context.principal):
            raise Denied("notify.refused", "A scheduled run cannot ask a person to confirm this.")
        question = f"{speaker(context.principal)} wants to {change}. Agree?"
        answer = await self.ask(context, question, (_YES, _NO), USUAL_ASK)
        if answer.strip().casefold() != _YES.casefold():
            raise Denied("notify.refused", f"The owner did not agree: {answer[:500]}")


PersonOf = Annotated[Person, Inject]


@tool(title="Tell the owner")
async def crib_notify_owner(
    message: Annotated[str, "The message, up to 4000 characters."],
    title: Annotated[str, "A short title.", Field(max_length=200)] = "",
    level: Annotated[Level, "The severity."] = "info",
    *,
    person: PersonOf,
    context: Calling,
) -> NoticeSent:
    """Tell the owner something without waiting for an answer.

    Use it for results and problems that the owner should see although no person watches this session. It is shown in
    the console and sent to the configured channels (webhook, desktop). Returns shown, and for each channel whether the
    notice was delivered.
    """
    sent = await person.notifier.notify(_notice(context.principal, message, title, level))
    return {"shown": True, "channels": [each.to_json() for each in sent]}


@tool(title="Ask the owner", scheduler_blocked=True, timeout=LONGEST_ASK * 60 + _GRACE)
async def crib_ask_owner(
    question: Annotated[str, "One question.", Field(min_length=1, max_length=LONGEST_QUESTION)],
    options: Annotated[
        list[str] | None, "Answers to choose from; the owner may give another one.", Field(max_length=MOST_OPTIONS)
    ] = None,
    context: Annotated[str | None, "The context the owner needs to answer.", Field(max_length=LONGEST_QUESTION)] = None,
    timeout_minutes: Annotated[float, "Minutes to wait.", Field(gt=0, le=LONGEST_ASK)] = USUAL_ASK,
    *,
    person: PersonOf,
    calling: Calling,
) -> OwnerReply:
    """Ask the owner a question and wait for the answer.

    Use it when only a person can decide: something irreversible, costly or a matter of taste. It is shown in the
    console and by `toolcrib approvals list`. Returns the answer; without one in time (10 minutes, 240 at most) it is an
    error, and you continue with what is safe.
    """
    whole = question if not context else f"{question}\n\n{context}"
    return {"answer": await person.ask(calling, whole, options or (), timeout_minutes)}


@tool(title="Configure notices")
async def crib_configure_notifications(
    action: Annotated[Literal["list", "set", "remove", "test"], "What to do."],
    channel: Annotated[ChannelKind | None, "The channel; not needed to list."] = None,
    config: Annotated[
        JsonObject | None,
        'For a webhook: {"url": "https://…"}, and "form" (slack, teams, ntfy) for these. For the desktop: nothing.',
    ] = None,
    *,
    person: PersonOf,
    context: Calling,
) -> Configured:
    """List, set, remove or test the channels for notices to the owner, besides the console.

    Use it when the owner wants notices elsewhere. A webhook gets a POST with JSON (level, title, message, text).
    Setting or removing a channel needs the confirmation of a person. Returns the configured channels, without their
    secrets.
    """
    notifier = person.notifier
    if action == "list":
        return {"channels": await notifier.channels()}
    if channel is None:
        raise InvalidRequest("notify.invalid", f"The action {action} needs a channel.", "Give `webhook` or `desktop`.")
    if action == "test":
        await notifier.test(channel)
        return {"channels": await notifier.channels(), "tested": channel}
    if action == "set":
        await _set(person, context, channel, config or {})
    else:
        await person.agree(context, f"remove the channel {channel} for notices")
        await notifier.remove(channel)
    return {"channels": await notifier.channels()}


async def _set(person: Person, context: Context, channel: ChannelKind, config: JsonObject) -> None:
    by_person = person.is_person(context.principal)
    if not by_person:
        described = person.notifier.check(channel, config)
        await person.agree(context, f"have notices sent to {described}")
    await person.notifier.set(channel, config, by=speaker(context.principal), is_local_allowed=by_person)


def _notice(principal: Principal, message: str, title: str, level: Level = "info") -> OwnerNotice:
    return OwnerNotice(message, title, level, principal.agent, principal.session)


TOOLS = (crib_notify_owner, crib_ask_owner, crib_configure_notifications)
