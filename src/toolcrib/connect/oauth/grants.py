"""The requests to an issuer: register this crib, redeem a code, renew a token.

Nothing here follows a redirect, since each request carries a secret.

Above: `signin`, `bearer`. Below: `discovery`, `tokens`. It must never send a secret to anybody but the issuer it
belongs to: each request is made from a value that names its issuer's endpoint.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

import anyio
import httpx2

from toolcrib.config.values import as_list, as_text
from toolcrib.connect.oauth.discovery import Issuer, read_object, split_scopes
from toolcrib.connect.oauth.failures import failed, shown
from toolcrib.connect.tokens import CLIENT_METHODS, ClientMethod, Credential, Registration, lifetime_of
from toolcrib.connect.web import DOCUMENT_SECONDS
from toolcrib.model.json import JsonObject

_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,60}")
_STALE_CLIENT = frozenset({"invalid_client", "unauthorized_client"})


class Refused(Exception):
    """An issuer said no. `lost_client` tells that it no longer knows this crib."""

    def __init__(self, status: int, error: str | None) -> None:
        super().__init__(f"the issuer answered {status}{f' ({error})' if error else ''}.")
        self.lost_client = error in _STALE_CLIENT
        # Asking again may help with these; with everything else only a new sign-in does.
        self.passing = status >= 500 or status in (408, 429)


async def register(
    client: httpx2.AsyncClient, issuer: Issuer, redirect_uri: str, scopes: tuple[str, ...]
) -> Registration:
    """Have this crib registered as a native program (RFC 7591)."""
    if issuer.registration_endpoint is None:
        raise failed(f"{shown(issuer.name)} registers no programs by itself, so the definition needs a client id.")
    wanted: JsonObject = {
        "client_name": "Toolcrib",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _best_method(issuer),
    }
    if scopes:
        wanted["scope"] = " ".join(scopes)
    with anyio.fail_after(DOCUMENT_SECONDS):
        response = await client.post(issuer.registration_endpoint, json=wanted)
    answer = read_object(response.content) or {}
    if response.status_code not in (200, 201):
        raise failed(
            f"{shown(issuer.name)} did not register this crib: {Refused(response.status_code, _error(answer))}"
        )
    return _registered(issuer, redirect_uri, scopes, answer)


def _registered(issuer: Issuer, redirect_uri: str, scopes: tuple[str, ...], answer: JsonObject) -> Registration:
    client_id, secret = as_text(answer.get("client_id")), as_text(answer.get("client_secret")) or None
    # An issuer that says nothing about the method means the one that RFC 7591 gives as default, if it made a secret.
    written = as_text(answer.get("token_endpoint_auth_method")) or ("client_secret_basic" if secret else "none")
    method: ClientMethod | None = next((known for known in CLIENT_METHODS if known == written), None)
    redirects = as_list(answer.get("redirect_uris"))
    if not client_id or method is None or (method != "none" and secret is None):
        raise failed(f"{shown(issuer.name)} registered this crib in a way that it cannot use.")
    if redirects and redirect_uri not in redirects:
        raise failed(f"{shown(issuer.name)} registered another return address than was asked for.")
    return Registration(
        issuer.name, client_id, secret if method != "none" else None, method, redirect_uri, scopes or None
    )


def _best_method(issuer: Issuer) -> ClientMethod:
    usable: list[ClientMethod] = [
        known for known in CLIENT_METHODS if issuer.methods is None or known in issuer.methods
    ]
    return usable[0] if usable else "none"


async def redeem(
    client: httpx2.AsyncClient, blank: Credential, code: str, verifier: str, redirect_uri: str, now: float
) -> Credential:
    """Exchange a code for tokens; `blank` is the credential without them. Raises `Refused`."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": redirect_uri,
        "resource": blank.resource,
    }
    return _granted(await _ask(client, blank, form), blank, now)


async def renew(client: httpx2.AsyncClient, credential: Credential, now: float) -> Credential:
    """Exchange the refresh token for new tokens. Raises `Refused`."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": credential.refresh_token or "",
        "resource": credential.resource,
    }
    return _granted(await _ask(client, credential, form), credential, now)


async def _ask(client: httpx2.AsyncClient, credential: Credential, form: Mapping[str, str]) -> JsonObject:
    known = credential.client
    fields = {**form, "client_id": known.client_id}
    headers = {"accept": "application/json"}
    if known.method == "client_secret_post":
        fields["client_secret"] = known.client_secret or ""
    elif known.method == "client_secret_basic":
        pair = f"{quote(known.client_id, safe='')}:{quote(known.client_secret or '', safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    with anyio.fail_after(DOCUMENT_SECONDS):
        response = await client.post(credential.token_endpoint, data=fields, headers=headers)
    answer = read_object(response.content) or {}
    if response.status_code != 200:
        raise Refused(response.status_code, _error(answer))
    return answer


def _granted(answer: JsonObject, before: Credential, now: float) -> Credential:
    """The credential with the tokens of an answer. What an answer leaves out stays as it was."""
    token, kind = as_text(answer.get("access_token")) or "", as_text(answer.get("token_type")) or "bearer"
    if not _TOKEN.fullmatch(token) or kind.lower() != "bearer":
        raise Refused(502, "no usable token")
    refresh = as_text(answer.get("refresh_token"))
    scope = as_text(answer.get("scope"))
    return replace(
        before,
        access_token=token,
        refresh_token=refresh or before.refresh_token,
        scopes=split_scopes(scope) if scope else before.scopes or before.asked,
        obtained_at=now,
        lifetime=lifetime_of(answer.get("expires_in")),
    )


def _error(answer: JsonObject) -> str | None:
    error = as_text(answer.get("error"))
    return error if error and _ERROR.fullmatch(error) else None
