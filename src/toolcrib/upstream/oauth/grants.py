"""Requests to an issuer: client registration, code exchange and token refresh.

No redirect is followed, since each request carries a secret.

Must never send a secret to any party but the issuer it belongs to: each request is built from a value that names its
issuer's endpoint.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

import anyio
import httpx2

from toolcrib.base.network.guarded_client import DOCUMENT_SECONDS
from toolcrib.model.json import JsonObject, as_list, as_text
from toolcrib.upstream.credentials import CLIENT_METHODS, ClientMethod, OAuthCredential, Registration, lifetime_of
from toolcrib.upstream.oauth.discovery import Issuer, read_object, split_scopes
from toolcrib.upstream.oauth.failures import failed, printable

_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,60}")
_STALE_CLIENT = frozenset({"invalid_client", "unauthorized_client"})


class GrantRefused(Exception):
    """Raised when an issuer rejects a request. `lost_client` is set if it no longer knows this crib."""

    def __init__(self, status: int, error: str | None) -> None:
        super().__init__(f"the issuer answered {status}{f' ({error})' if error else ''}.")
        self.lost_client = error in _STALE_CLIENT
        # A retry may succeed for these; everything else requires a new sign-in.
        self.passing = status >= 500 or status in (408, 429)


async def register(
    client: httpx2.AsyncClient, issuer: Issuer, redirect_uri: str, scopes: tuple[str, ...]
) -> Registration:
    """Register this crib as a native client (RFC 7591)."""
    if issuer.registration_endpoint is None:
        raise failed(f"{printable(issuer.name)} does not register clients, so the definition needs a client id.")
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
            f"{printable(issuer.name)} did not register this crib: {GrantRefused(response.status_code, _error(answer))}"
        )
    return _read_registration(issuer, redirect_uri, scopes, answer)


def _read_registration(issuer: Issuer, redirect_uri: str, scopes: tuple[str, ...], answer: JsonObject) -> Registration:
    client_id, secret = as_text(answer.get("client_id")), as_text(answer.get("client_secret")) or None
    # An issuer that returns a secret but no method means the default of RFC 7591.
    written = as_text(answer.get("token_endpoint_auth_method")) or ("client_secret_basic" if secret else "none")
    method: ClientMethod | None = next((known for known in CLIENT_METHODS if known == written), None)
    redirects = as_list(answer.get("redirect_uris"))
    if not client_id or method is None or (method != "none" and secret is None):
        raise failed(f"{printable(issuer.name)} returned a client registration that cannot be used.")
    if redirects and redirect_uri not in redirects:
        raise failed(f"{printable(issuer.name)} registered another redirect address than the requested one.")
    return Registration(
        issuer.name, client_id, secret if method != "none" else None, method, redirect_uri, scopes or None
    )


def _best_method(issuer: Issuer) -> ClientMethod:
    usable: list[ClientMethod] = [
        known for known in CLIENT_METHODS if issuer.methods is None or known in issuer.methods
    ]
    return usable[0] if usable else "none"


async def redeem(
    client: httpx2.AsyncClient, blank: OAuthCredential, code: str, verifier: str, redirect_uri: str, now: float
) -> OAuthCredential:
    """Exchange a code for tokens; `blank` is the credential without them. Raises `GrantRefused`."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": redirect_uri,
        "resource": blank.resource,
    }
    return _read_grant(await _ask(client, blank, form), blank, now)


async def renew(client: httpx2.AsyncClient, credential: OAuthCredential, now: float) -> OAuthCredential:
    """Exchange the refresh token for new tokens. Raises `GrantRefused`."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": credential.refresh_token or "",
        "resource": credential.resource,
    }
    return _read_grant(await _ask(client, credential, form), credential, now)


async def _ask(client: httpx2.AsyncClient, credential: OAuthCredential, form: Mapping[str, str]) -> JsonObject:
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
        raise GrantRefused(response.status_code, _error(answer))
    return answer


def _read_grant(answer: JsonObject, before: OAuthCredential, now: float) -> OAuthCredential:
    """Return the credential with the tokens of a response. Omitted members keep their value."""
    token, kind = as_text(answer.get("access_token")) or "", as_text(answer.get("token_type")) or "bearer"
    if not _TOKEN.fullmatch(token) or kind.lower() != "bearer":
        raise GrantRefused(502, "no usable token")
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
