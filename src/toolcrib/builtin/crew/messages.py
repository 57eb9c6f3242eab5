"""Crew tools for messages: ask another agent, wait for its answer, or hand work over.

A message starts or continues a session of the receiver. Guards stop endless conversations: the depth of the chain, the
messages and receivers per session, and duplicates. A thread continues only for the sender that started it, with
identical rights: it never has more rights than the caller.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, NotRequired

import anyio
from typing_extensions import TypedDict

from toolcrib.agents.sessions.sessions import NewSession, Sessions
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.builtin.caller import Calling, as_creator, check_depth, reporting_progress, speaker
from toolcrib.model.agents import HANDOVER, Agent
from toolcrib.model.errors import (
    Conflict,
    Denied,
    InvalidRequest,
    NotFound,
    ToolcribError,
    Unavailable,
)
from toolcrib.model.json import dumps
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, SessionLimits
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.tools import Context, Inject, tool

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

ANSWER_SECONDS: Final = 600.0
"""Timeout of an answer in seconds."""
LONGEST_MESSAGE: Final = 32_000
DUPLICATE_SECONDS: Final = 30.0
MOST_MESSAGES: Final = 5
MOST_TARGETS: Final = 2
_GRACE: Final = 120.0
"""Seconds added for the start and end of a process."""
_LAST_WORDS: Final = 5.0
_MOST_SENDERS: Final = 10_000
_AT_WORK: Final = frozenset({"starting", "running", "waiting"})


class Answered(TypedDict):
    """The answer to `crib_send_message`."""

    answer: str
    sessionId: str
    thread: str
    state: str
    handoverEntryId: NotRequired[str]


class KnownAgent(TypedDict):
    """One agent of the crew."""

    id: str
    name: str
    description: str


class KnownAgents(TypedDict):
    """The answer to `crib_list_agents`."""

    agents: list[KnownAgent]
    you: str | None


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to deliver."""

    to: str
    text: str
    thread: str | None = None
    handover: bool = False


@dataclass(slots=True)
class _Sender:
    """The messages sent by one session."""

    messages: int = 0
    targets: set[str] = field(default_factory=set[str])
    recent: dict[Letter, float] = field(default_factory=dict[Letter, float])


class Messenger:
    """Delivers messages between agents. Counts per session until the crib stops; with `counts`, on all nodes."""

    def __init__(
        self,
        sessions: Sessions,
        zoo: Zoo,
        clock: Callable[[], float] = time.monotonic,
        counts: SharedCounts | None = None,
    ) -> None:
        self._counts = counts
        self._sessions = sessions
        self._zoo = zoo
        self._clock = clock
        self._senders: OrderedDict[str, _Sender] = OrderedDict()

    async def send(self, context: Context, letter: Letter) -> Answered:
        """Deliver a message and wait for the answer. Raises `agent.unknown`, `session.…`, `crew.…`."""
        principal = as_creator(context.principal)
        _check(letter, principal)
        agent = (await self._zoo.get(letter.to)).agent
        sender = self._claim(letter, principal)
        counted: list[str] = []
        try:
            await self._count(letter, principal, counted)
            session = await self._open_session(letter, agent, principal)
            entry = await self._hand_over(letter, principal) if letter.handover else None
        except BaseException:
            self._unclaim(letter, sender)
            if self._counts is not None and counted:
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await self._counts.take_back(counted)
            raise
        async with reporting_progress(context, f"Waiting for {agent.name} (session {session.id})"):
            answer, state = await self._answer(session, _prompt(letter, principal))
        answered: Answered = {"answer": answer, "sessionId": session.id, "thread": session.id, "state": state}
        return answered if entry is None else {**answered, "handoverEntryId": entry}

    def _claim(self, letter: Letter, principal: Principal) -> _Sender:
        """Count the message, or raise if a limit is reached."""
        name = _name(principal)
        sender = self._senders.setdefault(name, _Sender())
        self._senders.move_to_end(name)
        if len(self._senders) > _MOST_SENDERS:
            self._senders.popitem(last=False)
        now = self._clock()
        sender.recent = {sent: at for sent, at in sender.recent.items() if now - at < DUPLICATE_SECONDS}
        if letter in sender.recent:
            raise _duplicate()
        if principal.session is not None:
            _check_limits(sender, letter.to)
        sender.recent[letter] = now
        sender.messages += 1
        sender.targets.add(letter.to)
        return sender

    async def _count(self, letter: Letter, principal: Principal, counted: list[str]) -> None:
        """Count the message for all nodes, or raise if a limit is reached. `counted` gets what an error undoes."""
        counts, session = self._counts, principal.session
        if counts is None:
            return
        name = _name(principal)
        digest = hashlib.sha256(dumps([letter.to, letter.text, letter.thread, letter.handover])).hexdigest()
        use, same = await counts.add(f"letter {name} {digest}", 1.0, DUPLICATE_SECONDS)
        counted.append(use)
        if same.amount > 1:
            raise _duplicate()
        if session is None:
            return
        use, sent = await counts.add(f"letters {name}", 1.0, None)
        counted.append(use)
        if sent.amount > MOST_MESSAGES:
            raise _too_many_messages()
        receiver = f"receiver {name} {letter.to}"
        is_new, asked = await counts.add_once(f"receivers {name}", receiver)
        if is_new and asked.amount > MOST_TARGETS:
            counted.append(receiver)
            raise Denied("crew.limit", f"Agent limit reached: this session may ask {MOST_TARGETS} agents.")

    def _unclaim(self, letter: Letter, sender: _Sender) -> None:
        """Undo the count of an unsent message. The receiver stays counted, so that failures cannot bypass the limit."""
        sender.recent.pop(letter, None)
        sender.messages -= 1

    async def _open_session(self, letter: Letter, agent: Agent, principal: Principal) -> Session:
        if letter.thread is not None:
            return await self._thread(letter.thread, agent, principal)
        caller = await self._sessions.get(principal.session) if principal.session is not None else None
        return await self._sessions.create(
            NewSession(
                source="agent",
                cwd=principal.cwd,
                agent=agent.id,
                mode=agent.mode or principal.mode,
                title=f"{speaker(principal)}: {letter.text.strip().splitlines()[0]}"[:80],
                runner=caller.runner if caller is not None else None,
                limits=SessionLimits(seconds=ANSWER_SECONDS),
                creator=principal,
            )
        )

    async def _thread(self, thread: str, agent: Agent, principal: Principal) -> Session:
        """Return the session of a thread; raise unless it has the same sender, receiver and rights."""
        try:
            session = await self._sessions.get(thread)
        except NotFound:
            session = None
        if session is None or session.agent != agent.id or session.creator is None:
            raise NotFound("crew.thread", f"You have no thread {thread!r} with {agent.id}.")
        if session.creator != principal:
            raise NotFound(
                "crew.thread", f"The thread {thread!r} was started by another session, or with other rights."
            )
        if session.state in _AT_WORK:
            raise Conflict("crew.busy", f"{agent.name} is still working on the last message of this thread.")
        return session

    async def _hand_over(self, letter: Letter, principal: Principal) -> str:
        """Store a summary in the receiver's brain; never pinned, because pinned entries become part of its prompt."""
        metadata = {"source": "auto"} | ({"sessionId": principal.session} if principal.session else {})
        given = {
            "type": "summary",
            "content": f"Handed over by {speaker(principal)}:\n\n{letter.text}",
            "tags": [HANDOVER, speaker(principal)[:100]],
            "metadata": metadata,
        }
        return (await self._zoo.brain.add(letter.to, parse(agent_input.EntryInput, given), source="auto")).id

    async def _answer(self, session: Session, prompt: str) -> tuple[str, str]:
        """Return the receiver's last message and how its turn ended."""
        try:
            with anyio.fail_after(ANSWER_SECONDS + _GRACE / 2):
                return await self._follow_turn(session, prompt)
        except ToolcribError:
            raise
        except BaseException as error:  # boundary: the caller is gone, so the turn is interrupted
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                await self._sessions.interrupt(session.id)
            if isinstance(error, TimeoutError):
                raise _no_answer_error(session, "it timed out") from None
            raise

    async def _follow_turn(self, session: Session, prompt: str) -> tuple[str, str]:
        log = await self._sessions.events(session.id)
        sent = await self._sessions.send(session.id, prompt)
        answer = ""
        async with aclosing(log.follow(sent.seq, is_person=False)) as batches:
            async for batch in batches:
                for event in batch:
                    if event.kind == "text_message" and event.parent is None:
                        answer = str(event.data["text"])
                    elif event.kind == "done":
                        return await self._check_answer(session, answer, str(event.data["reason"]))
        raise _no_answer_error(session, "its session was closed")

    async def _check_answer(self, session: Session, answer: str, state: str) -> tuple[str, str]:
        if state == "completed" or (state == "limit" and answer):
            return answer, state
        reason = (await self._sessions.get(session.id)).reason
        raise _no_answer_error(session, f"its turn ended with state {state}" + (f". {reason}" if reason else ""))


Mail = Annotated[Messenger, Inject]


@tool(title="Ask another agent", scheduler_blocked=True, timeout=ANSWER_SECONDS + _GRACE)
async def crib_send_message(
    to_agent: Annotated[str, "ID of the agent to ask, as returned by crib_list_agents."],
    message: Annotated[str, "The request, with all context: the agent does not see your conversation."],
    thread: Annotated[str | None, "A thread of an earlier answer, to continue it. Default: a new thread."] = None,
    handover: Annotated[bool, "Also store a summary in its memory, linked to your transcript."] = False,
    *,
    messenger: Mail,
    context: Calling,
) -> Answered:
    """Send a message to another agent and wait for its answer.

    Use it when another agent knows or does something better than you, or to delegate work. It works in its own session,
    in your directory, and never with more rights than you have. Returns answer, sessionId (its transcript), thread (to
    continue) and state (completed, or limit if it was cut short). An answer may take 10 minutes. Limits: 5 messages to
    2 agents per session; work is delegated at most 3 times, never to yourself; the same message is sent once in 30
    seconds.
    """
    return await messenger.send(context, Letter(to_agent, message, thread, handover))


@tool(read_only=True, title="List the crew")
async def crib_list_agents(*, zoo: Annotated[Zoo, Inject], context: Calling) -> KnownAgents:
    """List the agents of the crew. Use it to find an agent for crib_send_message.

    Returns id, name and description of each, and under `you` the id of the calling agent.
    """
    found = [KnownAgent(id=each.id, name=each.name, description=each.description) for each in await zoo.list()]
    return {"agents": found, "you": context.agent}


def _check(letter: Letter, principal: Principal) -> None:
    if not letter.text.strip() or len(letter.text) > LONGEST_MESSAGE:
        raise InvalidRequest(
            "session.message", f"A message must have 1 to {LONGEST_MESSAGE} characters.", "Write another."
        )
    if letter.to == principal.agent:
        raise InvalidRequest("crew.to_self", f"Agent {letter.to!r} cannot send a message to itself.")
    check_depth(principal)


def _name(principal: Principal) -> str:
    """Return what messages are counted by: the session, or else the caller."""
    return principal.session or f"{principal.kind} {principal.name} {principal.agent}"


def _duplicate() -> Conflict:
    return Conflict("crew.duplicate", "Message already sent (duplicate suppressed).")


def _too_many_messages() -> Denied:
    message = f"Message limit reached: this session has sent {MOST_MESSAGES} messages to other agents."
    return Denied("crew.limit", message)


def _check_limits(sender: _Sender, to: str) -> None:
    if sender.messages >= MOST_MESSAGES:
        raise _too_many_messages()
    if to not in sender.targets and len(sender.targets) >= MOST_TARGETS:
        asked = " and ".join(sorted(sender.targets))
        raise Denied(
            "crew.limit", f"Agent limit reached: this session has asked {asked} and may ask {MOST_TARGETS} agents."
        )


def _prompt(letter: Letter, principal: Principal) -> str:
    return f"{speaker(principal)} sends you this message. Your last message is returned as the answer.\n\n{letter.text}"


def _no_answer_error(session: Session, why: str) -> Unavailable:
    hint = f"Its session is {session.id}: continue with thread={session.id}, ask another agent, or proceed without it."
    return Unavailable("crew.no_answer", f"{session.agent} did not answer: {why.removesuffix('.')}.", hint)


TOOLS = (crib_send_message, crib_list_agents)
