"""Delivers notices outside the console: to a webhook or through a desktop program.

Webhook requests are signed as the Standard Webhooks specification describes, so that its libraries verify them.

Requests go through `base.network.web`, whose clients check every address before connecting. Must never pass a notice to
a shell, nor follow a webhook's redirect.
"""

import base64
import contextlib
import hmac
import html
import secrets
import shutil
import subprocess
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio

from toolcrib.agents.notify.forms import DEFAULT_FORM, FORMS
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import Web
from toolcrib.base.settings import Environment
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.notices import OwnerNotice

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

PREFIX: Final = "whsec_"


def sign(body: bytes, secret: str, *, id: str | None = None, at: int | None = None) -> dict[str, str]:
    """Return the headers that sign a body: `webhook-id`, `webhook-timestamp` and `webhook-signature`."""
    id = id or f"msg_{secrets.token_hex(12)}"
    stamp = str(int(time.time()) if at is None else at)
    signed = hmac.digest(_key(secret), f"{id}.{stamp}.".encode() + body, "sha256")
    signature = f"v1,{base64.b64encode(signed).decode()}"
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}


def _key(secret: str) -> bytes:
    """Return the key: the decoded part after `whsec_`, else the text itself."""
    encoded = secret.removeprefix(PREFIX)
    return secret.encode() if encoded == secret else base64.b64decode(encoded)


TIMEOUT: Final = 10.0
"""Seconds allowed for one delivery."""
_APPLE: Final = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_MAX_ANSWER: Final = 64 * 1024
WAITS: Final = (1.0, 5.0, 25.0)
"""Seconds between the attempts of a delivery that is repeated."""
_TEMPORARY: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


def checked_webhook(config: JsonObject, *, is_local_allowed: bool) -> JsonObject:
    """Return a webhook's config as stored; raises `notify.invalid`, `url.refused`."""
    url: Json = config.get("url")
    form: Json = config.get("form", DEFAULT_FORM)
    if not isinstance(url, str) or not set(config) <= {"url", "form"}:
        raise InvalidRequest("notify.invalid", "A webhook takes a URL and a form.", 'Give {"url": "…"}.')
    if form not in FORMS:
        raise InvalidRequest("notify.invalid", f"{form!r} is not a form.", f"Forms: {', '.join(FORMS)}.")
    checked = check_url(url, local_allowed=is_local_allowed)
    FORMS[form](checked.text, OwnerNotice("", ""), {})
    return {"url": checked.text, "form": form, "local": is_local_allowed}


def shown_webhook(config: JsonObject) -> str:
    """Return the displayable part of a webhook: the rest of its URL is often a secret."""
    return f"{check_url(config['url'], local_allowed=config['local']).origin}/…"


async def post(web: Web, config: JsonObject, notice: OwnerNotice, more: JsonObject, secret: str | None = None) -> None:
    """Send a notice to a webhook once, signed if there is a secret; raises `notify.failed`."""
    _check(await _attempt(web, config, notice, more, secret, _new_id()))


async def post_repeatedly(
    web: Web, config: JsonObject, notice: OwnerNotice, more: JsonObject, secret: str | None = None
) -> None:
    """Send a notice like `post`, and repeat it with growing waits while the receiver fails. All have the same id."""
    id = _new_id()
    for wait in WAITS:
        status = 0
        with contextlib.suppress(Unavailable):
            status = await _attempt(web, config, notice, more, secret, id)
        if HTTPStatus.OK <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _TEMPORARY:
            _check(status)
            return
        await anyio.sleep(wait)
    _check(await _attempt(web, config, notice, more, secret, id))


def _new_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


async def _attempt(
    web: Web, config: JsonObject, notice: OwnerNotice, more: JsonObject, secret: str | None, id: str
) -> int:
    """Send a request and return the status of its answer."""
    url, fields = FORMS[config.get("form", DEFAULT_FORM)](config["url"], notice, more)
    body = dumps(fields)
    headers = {"content-type": "application/json"} | (sign(body, secret, id=id) if secret is not None else {})
    try:
        with anyio.fail_after(TIMEOUT):
            async with web.client(local_allowed=config["local"], max_body=_MAX_ANSWER) as client:
                return (await client.post(url, content=body, headers=headers)).status_code
    except TimeoutError:
        raise Unavailable("notify.failed", f"The webhook did not answer within {TIMEOUT:g} s.") from None
    except (httpx2.HTTPError, ToolcribError) as error:
        raise Unavailable("notify.failed", f"The webhook cannot be reached: {error}") from None


def _check(status: int) -> None:
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise Unavailable("notify.failed", f"The webhook answered with status {status}.")


def desktop_command(environment: Environment) -> tuple[str, ...] | None:
    """Return the desktop's notification command, to which title and message are appended, or None."""
    path = environment.get("PATH")
    if (found := shutil.which("notify-send", path=path)) is not None:
        return (found, "--app-name=Toolcrib", "--")
    if (found := shutil.which("osascript", path=path)) is not None:
        return (found, *(word for line in _APPLE for word in ("-e", line)))
    return None


async def show(environment: Environment, notice: OwnerNotice) -> None:
    """Show a notice on the desktop; raises `notify.failed`."""
    command = desktop_command(environment)
    if command is None:
        raise Unavailable("notify.failed", "No program for desktop notifications was found.", "Install notify-send.")
    title, message = notice.title or "Toolcrib", notice.message
    is_markup = command[-1] == "--"
    words = (title, html.escape(message, quote=False) if is_markup else message)
    try:
        with anyio.fail_after(TIMEOUT):
            await anyio.run_process(
                [*command, *words], env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
    except TimeoutError:
        raise Unavailable("notify.failed", f"{command[0]} timed out after {TIMEOUT:g} s.") from None
    except subprocess.CalledProcessError as error:
        output = (error.stderr or b"").decode(errors="replace").strip()
        raise Unavailable("notify.failed", f"{command[0]} failed: {output[:500] or error.returncode}") from None
    except OSError as error:
        raise Unavailable("notify.failed", f"{command[0]} cannot be run: {error.strerror}.") from None
