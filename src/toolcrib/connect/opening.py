"""From a trusted definition to an open conversation: values put in, the process started or the address dialled.

Above: `link`, in whose own task this runs. Below: `config.resolve`, `greet`, `oauth`, `talk`. It must never start or
dial anything for a definition with a value missing, nor let a secret of it into a message.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from toolcrib.config.masking import MASK, mask_value
from toolcrib.config.resolve import Resolved, resolve
from toolcrib.config.secrets import SecretCommands
from toolcrib.connect.conversation import Conversation
from toolcrib.connect.greet import Greeting, Hello, open_greeted
from toolcrib.connect.http import open_web_server
from toolcrib.connect.oauth import Bearer
from toolcrib.connect.process import Processes, ServerFailed
from toolcrib.connect.retries import Timing
from toolcrib.connect.stderr import Mask
from toolcrib.connect.talk import OK, Talk, ending
from toolcrib.connect.tokens import Tokens
from toolcrib.connect.urls import CheckedUrl, check_url, is_loopback
from toolcrib.connect.web import Web
from toolcrib.errors import ConfigError, ToolcribError
from toolcrib.model.protocol import Era
from toolcrib.model.servers import ServerSpec

TOKEN_VARIABLE = "OAUTH_ACCESS_TOKEN"
FIRST_WORDS: Final[Mapping[Era, str]] = {"modern": "server/discover", "legacy": "initialize"}
_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True)
class Ground:
    """What all links of a crib share. `workspace` is where relative paths of definitions above projects start."""

    processes: Processes
    web: Web
    tokens: Tokens
    environment: Mapping[str, str] = field(repr=False)
    commands: SecretCommands
    hello: Hello
    workspace: Path | None = None
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, slots=True)
class Opened:
    """A conversation that was opened. `pid` is that of the process, if there is one of ours."""

    conversation: Conversation
    greeting: Greeting
    pid: int | None = None


def credential_name(spec: ServerSpec) -> str:
    """The name that the sign-in at a server is stored under."""
    named = spec.auth.credential_id if spec.auth is not None else None
    return named or spec.alias or spec.name


class Opener:
    """Opens conversations with one server, one after the other; keeps its sign-in between them."""

    def __init__(
        self, ground: Ground, spec: ServerSpec, own_url: Callable[[], str | None], hello: Hello | None = None
    ) -> None:
        self._ground = ground
        self._spec = spec
        self._own_url = own_url
        self._hello = hello or ground.hello
        self._bearer: Bearer | None = None
        self._mask: Mask = str

    @property
    def hello(self) -> Hello:
        """Who we are to this server."""
        return self._hello

    async def signed_in(self) -> None:
        """Somebody signed in or out: look again at what is stored."""
        if self._bearer is not None:
            await self._bearer.reload()

    def hush(self, failure: ToolcribError) -> None:
        """Hide the definition's secrets in what is told of a failure: servers repeat what they were sent."""
        if isinstance(failure, ServerFailed):
            failure.brief = self._mask(failure.brief)
        failure.message = self._mask(failure.message)
        failure.args = (failure.message,)

    @asynccontextmanager
    async def open(self, era: Era | None, connect_wait: float, talk: Talk) -> AsyncGenerator[Opened]:
        """A greeted conversation for the length of the block; how long that took, from the start, is noted.

        `era` is what is remembered of the server, or what is wanted of it; where it does not hold, the server is
        greeted without. Raises what keeps it from standing, as a `ToolcribError`.
        """
        resolved = await self._resolved()
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self._noted(resolved, era, connect_wait, talk))
            except ToolcribError as failure:
                if era is None or failure.code not in ("server.ended", "server.protocol"):
                    raise
                opened = await stack.enter_async_context(self._noted(resolved, None, connect_wait, talk))
            yield opened

    @asynccontextmanager
    async def _noted(self, resolved: Resolved, era: Era | None, wait: float, talk: Talk) -> AsyncGenerator[Opened]:
        began = time()
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self._opening(resolved, era, wait))
            except ToolcribError as failure:
                talk.note((began, time(), "out", FIRST_WORDS[era or "modern"], None, ending(failure)))
                raise
            talk.note((began, time(), "out", FIRST_WORDS[opened.greeting.era], None, OK))
            yield opened

    async def _resolved(self) -> Resolved:
        ground, spec = self._ground, self._spec
        resolved = await resolve(spec, ground.environment, ground.commands, ground.workspace)
        if resolved.problems:
            problem = resolved.problems[0]
            raise ConfigError(problem.code, problem.message, problem.hint)
        self._mask = masking(resolved)
        if spec.type == "stdio" and spec.auth is not None:
            token = await self._token()
            if token is not None:
                resolved = replace(resolved, env={**resolved.env, TOKEN_VARIABLE: token})
                self._mask = masking(resolved)
        return resolved

    def _opening(self, resolved: Resolved, era: Era | None, wait: float) -> AbstractAsyncContextManager[Opened]:
        spec = self._spec
        return self._started(resolved, era, wait) if spec.type == "stdio" else self._dialled(resolved, era, wait)

    @asynccontextmanager
    async def _started(self, resolved: Resolved, era: Era | None, wait: float) -> AsyncGenerator[Opened]:
        processes = self._ground.processes
        async with open_greeted(
            processes, self._spec.name, resolved, self._hello, mask=self._mask, era=era, connect_wait=wait
        ) as (conversation, greeting):
            yield Opened(conversation, greeting, conversation.pid)

    @asynccontextmanager
    async def _dialled(self, resolved: Resolved, era: Era | None, wait: float) -> AsyncGenerator[Opened]:
        spec, ground = self._spec, self._ground
        # Its owner agreed to exactly this address, so it may be one of this machine or network.
        url = check_url(resolved.url or "", local_allowed=True)
        if _is_same_origin(url, self._own_url()):
            message = f'Server "{spec.name}" is this crib itself, so it is not connected to.'
            raise ConfigError("server.own_crib", message, f"Run `toolcrib mcp disable {spec.alias}`.")
        if self._bearer is None and "authorization" not in {name.lower() for name in resolved.headers}:
            self._bearer = Bearer(ground.web, ground.tokens, credential_name(spec), url)
        async with open_web_server(
            ground.web,
            spec.name,
            url,
            transport="sse" if spec.type == "sse" else "http",
            headers=resolved.headers,
            bearer=self._bearer,
            local_allowed=True,
            hello=self._hello,
            era=era,
            connect_wait=wait,
            idle_wait=ground.timing.idle,
        ) as (conversation, greeting):
            yield Opened(conversation, greeting)

    async def _token(self) -> str | None:
        """The token for a program that is given it at its start; without one it may still work."""
        name = credential_name(self._spec)
        stored = await self._ground.tokens.held(name)
        if stored is None:
            return None
        if self._bearer is None:
            url = check_url(stored.resource, local_allowed=stored.local)
            self._bearer = Bearer(self._ground.web, self._ground.tokens, name, url)
        return await self._bearer.access_token()


def _is_same_origin(url: CheckedUrl, own: str | None) -> bool:
    """Whether an address is one that this crib listens on, by whatever name of this machine."""
    if own is None:
        return False
    ours = check_url(own, local_allowed=True)
    return url.port == ours.port and (url.host == ours.host or (_is_this_machine(url) and _is_this_machine(ours)))


def _is_this_machine(url: CheckedUrl) -> bool:
    return url.host == "localhost" or is_loopback(url.host)


def masking(resolved: Resolved) -> Mask:
    """Hides the secret values of a definition wherever a server repeats them."""
    in_url = parse_qsl(urlsplit(resolved.url or "").query)
    named = (*resolved.env.items(), *resolved.headers.items(), *in_url)
    secrets = sorted(set(_secrets(named)), key=len, reverse=True)

    def mask(line: str) -> str:
        for secret in secrets:
            line = line.replace(secret, MASK)
        return line

    return mask


def _secrets(values: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, value in values:
        if len(value) >= _SHORTEST_SECRET and mask_value(name, value) != value:
            yield value
            last = value.rpartition(" ")[2]  # of `Bearer …`, the part that a server may repeat alone
            if len(last) >= _SHORTEST_SECRET:
                yield last


def again(failure: ToolcribError, message: str | None = None) -> ToolcribError:
    """The same failure for one more who is told, in these words: each exception collects its own traceback."""
    if isinstance(failure, ServerFailed):
        return ServerFailed(failure.code, message or failure.brief, failure.exited_with, failure.stderr)
    return type(failure)(failure.code, message or failure.message, failure.hint)
