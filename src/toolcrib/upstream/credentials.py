"""Stored sign-ins, which let this crib act at a server on its owner's behalf.

A credential belongs to one server, one resource and one issuer, and is returned for nothing else. A registration
belongs to one issuer. A new token replaces the old one atomically, once it is on disk, and only one process at a time
refreshes the tokens of a server.

A sign-in is stored under a name that no other definition can refer to. In the user's own files a `credentialId` names a
sign-in that several definitions share. In a project's file it only names the project's own sign-in: anyone who can
write to a repository must not be able to reach a token that was issued for another server.

Must never let a token into a `repr`, a message or a log.
"""

import hashlib
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.network.urls import covers
from toolcrib.base.secret_store import SecretStore, open_secret_store, process_lock
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, digest
from toolcrib.model.servers import Auth, ServerSpec
from toolcrib.servers.identity import normal_url

ClientMethod = Literal["none", "client_secret_basic", "client_secret_post"]
CLIENT_METHODS: tuple[ClientMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
"""The supported client authentication methods, in order of preference."""

LONGEST_LIFETIME = 10 * 365 * 86_400.0
_NAME_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Registration:
    """This crib's client registration at one issuer. `scopes` is None if the registration did not name any."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    method: ClientMethod = "none"
    redirect_uri: str | None = None
    scopes: tuple[str, ...] | None = None

    def to_json(self) -> JsonObject:
        """Return the stored form."""
        return {
            "issuer": self.issuer,
            "clientId": self.client_id,
            "clientSecret": self.client_secret,
            "method": self.method,
            "redirectUri": self.redirect_uri,
            "scopes": list(self.scopes) if self.scopes is not None else None,
        }


@dataclass(frozen=True, slots=True)
class OAuthCredential:
    """The tokens for one server, with everything needed to refresh them.

    `asked` are the requested scopes, `scopes` the granted ones. The expiry is stored as a lifetime and the time of
    receipt, so that setting the clock back cannot extend it. `local` records that the server was on this machine or
    network at sign-in, so that its issuer may be there too.
    """

    server: str
    resource: str
    client: Registration
    token_endpoint: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    obtained_at: float = 0.0
    lifetime: float | None = None
    local: bool = False

    @property
    def issuer(self) -> str:
        """The issuer of the tokens, the only party that ever receives the refresh token."""
        return self.client.issuer

    def remaining(self, now: float) -> float | None:
        """Return the seconds until the access token expires, or None if its lifetime is unknown."""
        return None if self.lifetime is None else self.lifetime - max(0.0, now - self.obtained_at)

    def to_json(self) -> JsonObject:
        """Return the stored form."""
        return {
            "server": self.server,
            "resource": self.resource,
            "client": self.client.to_json(),
            "tokenEndpoint": self.token_endpoint,
            "accessToken": self.access_token,
            "refreshToken": self.refresh_token,
            "scopes": list(self.scopes),
            "asked": list(self.asked),
            "obtainedAt": self.obtained_at,
            "lifetime": self.lifetime,
            "local": self.local,
        }


def lifetime_of(expires_in: Json) -> float | None:
    """Return the lifetime from a token response, or None if it is missing or invalid."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        seconds = float(expires_in)
    except (ValueError, OverflowError):
        return None
    return min(seconds, LONGEST_LIFETIME) if math.isfinite(seconds) and seconds > 0 else None


class CredentialStore:
    """The sign-ins of one home. Every token read or written is added to `secrets`.

    Without a `store`, that of the directory is opened when it is first needed: most starts of a crib need none.
    """

    def __init__(self, directory: Path, secrets: KnownSecrets | None = None, store: SecretStore | None = None) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._store = store
        self._opening = anyio.Lock()
        self._directory = directory
        self._secrets = secrets or KnownSecrets()

    async def credential(self, server: str, url: str) -> OAuthCredential | None:
        """Return the sign-in at this server, or None if there is none or it is for another URL."""
        found = self._with_masking(_credential(await self._get(f"server {server}")))
        return found if found is not None and found.server == server and covers(found.resource, url) else None

    async def adopt(self, server: str, former: str | None, url: str) -> None:
        """Move a sign-in from a former name to this one, if it is for this URL."""
        if former is None or await self.credential(server, url) is not None:
            return
        found = await self.credential(former, url)
        if found is not None:
            await self.keep(replace(found, server=server))
            await self._put(f"server {former}", None)

    async def renew_client(self, server: str, url: str, auth: Auth | None) -> None:
        """Use the definition's client secret for the next refresh, if it was replaced since the sign-in."""
        found = await self.credential(server, url) if auth is not None and auth.client_secret else None
        if auth is None or found is None or found.client.client_id != auth.client_id:
            return
        if found.client.client_secret not in (None, auth.client_secret):
            await self.keep(replace(found, client=replace(found.client, client_secret=auth.client_secret)))

    async def held(self, server: str) -> OAuthCredential | None:
        """Return the sign-in under this name for any resource, for a definition that passes the token to a program."""
        found = self._with_masking(_credential(await self._get(f"server {server}")))
        return found if found is not None and found.server == server else None

    async def keep(self, credential: OAuthCredential) -> None:
        """Write a sign-in to disk, replacing the server's previous one."""
        self._with_masking(credential)
        await self._put(f"server {credential.server}", credential.to_json())

    async def forget(self, server: str) -> None:
        """Remove the sign-in at a server and the binding of its client secret to an issuer."""
        await self._put(f"server {server}", None)
        await self._put(f"issuer {server}", None)

    async def registration(self, issuer: str) -> Registration | None:
        """Return this crib's registration at an issuer."""
        found = _registration(await self._get(f"client {issuer}"))
        return found if found is not None and found.issuer == issuer else None

    async def keep_registration(self, registration: Registration) -> None:
        """Store a registration."""
        await self._put(f"client {registration.issuer}", registration.to_json())

    async def forget_registration(self, issuer: str) -> None:
        """Delete a registration that the issuer no longer knows."""
        await self._put(f"client {issuer}", None)

    async def bound_issuer(self, server: str, client_id: str) -> str | None:
        """Return the issuer that a definition's client secret is bound to. It is never sent to another one."""
        row = await self._get(f"issuer {server}") or {}
        return as_text(row.get("issuer")) if row.get("clientId") == client_id else None

    async def bind_issuer(self, server: str, client_id: str, issuer: str) -> None:
        """Bind a definition's client secret to an issuer."""
        await self._put(f"issuer {server}", {"clientId": client_id, "issuer": issuer})

    def renewing(self, server: str, seconds: float) -> AbstractAsyncContextManager[bool]:
        """Lock the refresh of a server's tokens across processes. Yields False if the lock was not free in time."""
        name = hashlib.sha256(server.encode()).hexdigest()[:32]
        return process_lock(self._directory / f"{name}.lock", seconds)

    def _with_masking(self, credential: OAuthCredential | None) -> OAuthCredential | None:
        """Register the credential's secrets for masking and return it."""
        if credential is not None:
            held = (credential.access_token, credential.refresh_token, credential.client.client_secret)
            self._secrets.add(*(secret for secret in held if secret))
        return credential

    async def _get(self, name: str) -> JsonObject | None:
        return await anyio.to_thread.run_sync((await self._open()).get, name)

    async def _put(self, name: str, value: JsonObject | None) -> None:
        await anyio.to_thread.run_sync((await self._open()).put, name, value)

    async def _open(self) -> SecretStore:
        async with self._opening:
            if self._store is None:
                self._store = await open_secret_store(self._directory)
            return self._store


def credential_name(spec: ServerSpec) -> str:
    """Return the name that the sign-in at a server is stored under."""
    named = spec.auth.credential_id if spec.auth is not None else None
    project = spec.source.project
    if project is None and (named or spec.type == "stdio"):
        return named or _alias(spec)
    address = normal_url(spec.url) if spec.url is not None else [spec.command, *spec.args]
    bound = digest([project, address, named or spec.name])[:_NAME_DIGITS]
    return f"{'project' if project is not None else 'personal'} {bound}"


def former_name(spec: ServerSpec) -> str | None:
    """Return the name that earlier versions used for this sign-in, or None if it must not be adopted."""
    name = _alias(spec)
    return name if spec.source.project is None and credential_name(spec) not in (name, _credential_id(spec)) else None


def _credential_id(spec: ServerSpec) -> str | None:
    return spec.auth.credential_id if spec.auth is not None else None


def _alias(spec: ServerSpec) -> str:
    return spec.alias or spec.name


def _credential(row: JsonObject | None) -> OAuthCredential | None:
    client = _registration(as_object((row or {}).get("client")))
    match row:
        case {
            "server": str(server),
            "resource": str(resource),
            "tokenEndpoint": str(token_endpoint),
            "accessToken": str(access_token),
            "obtainedAt": int() | float() as obtained_at,
        } if client is not None:
            return OAuthCredential(
                server=server,
                resource=resource,
                client=client,
                token_endpoint=token_endpoint,
                access_token=access_token,
                refresh_token=as_text(row.get("refreshToken")),
                scopes=_texts(row, "scopes") or (),
                asked=_texts(row, "asked") or (),
                obtained_at=obtained_at,
                lifetime=lifetime_of(row.get("lifetime")),
                local=row.get("local") is True,
            )
        case _:
            return None


def _registration(row: JsonObject | None) -> Registration | None:
    match row:
        case {
            "issuer": str(issuer),
            "clientId": str(client_id),
            "method": "none" | "client_secret_basic" | "client_secret_post" as method,
        }:
            secret, redirect = as_text(row.get("clientSecret")), as_text(row.get("redirectUri"))
            return Registration(issuer, client_id, secret, method, redirect, _texts(row, "scopes"))
        case _:
            return None


def _texts(row: Mapping[str, Json], key: str) -> tuple[str, ...] | None:
    listed = as_list(row.get(key))
    return tuple(text for text in listed if isinstance(text, str)) if listed is not None else None
