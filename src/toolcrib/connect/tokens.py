"""Stored sign-ins: what lets this crib act at a server on its owner's behalf.

A credential belongs to one server, one resource and one issuer, and is given out for nothing else; what this crib is
registered as belongs to one issuer. A new token takes the place of the old one in one step, once it is on disk, and
one process at a time renews the tokens of a server.

Above: `oauth`. Below: `shelves`, where things are kept. It must never let a token into a `repr`, a message or a log.
"""

import hashlib
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio.to_thread

from toolcrib.config.values import as_list, as_object, as_text
from toolcrib.connect.shelves import Shelf, only_process, open_shelf
from toolcrib.connect.urls import covers
from toolcrib.model.json import Json, JsonObject

ClientMethod = Literal["none", "client_secret_basic", "client_secret_post"]
CLIENT_METHODS: tuple[ClientMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
"""How this crib can prove who it is to an issuer, the best first."""

LONGEST_LIFE = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Registration:
    """This crib as one issuer knows it. `scopes` None means that the issuer was told none."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    method: ClientMethod = "none"
    redirect_uri: str | None = None
    scopes: tuple[str, ...] | None = None

    def to_json(self) -> JsonObject:
        """As it is stored."""
        return {
            "issuer": self.issuer,
            "clientId": self.client_id,
            "clientSecret": self.client_secret,
            "method": self.method,
            "redirectUri": self.redirect_uri,
            "scopes": list(self.scopes) if self.scopes is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Credential:
    """The tokens for one server, and all that renewing them needs.

    `asked` are the scopes that were requested, `scopes` those that were granted. How long the access token lives is
    kept as a length and the moment it came, so that a clock that is set back cannot prolong it. `local` says that the
    server was in this machine or network when it was signed in to, so that its issuer may be there too.
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
        """Who issued the tokens, and the only one who ever sees the refresh token."""
        return self.client.issuer

    def remaining(self, now: float) -> float | None:
        """The seconds the access token has left at this moment; None if nobody said."""
        return None if self.lifetime is None else self.lifetime - max(0.0, now - self.obtained_at)

    def to_json(self) -> JsonObject:
        """As it is stored."""
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
    """The life of a token from what an issuer sent. What is missing or makes no sense says nothing: use will tell."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        seconds = float(expires_in)
    except (ValueError, OverflowError):
        return None
    return min(seconds, LONGEST_LIFE) if math.isfinite(seconds) and seconds > 0 else None


class Tokens:
    """The sign-ins of one home."""

    def __init__(self, shelf: Shelf, directory: Path) -> None:
        self._shelf = shelf
        self._directory = directory

    async def credential(self, server: str, url: str) -> Credential | None:
        """The sign-in at this server if it is for this URL; one for anything else is not given out."""
        found = _credential(await self._get(f"server {server}"))
        return found if found is not None and found.server == server and covers(found.resource, url) else None

    async def held(self, server: str) -> Credential | None:
        """The sign-in kept under this name, for whatever resource: for a program that a definition hands it to."""
        found = _credential(await self._get(f"server {server}"))
        return found if found is not None and found.server == server else None

    async def keep(self, credential: Credential) -> None:
        """Have it on disk, in place of whatever the server had before."""
        await self._put(f"server {credential.server}", credential.to_json())

    async def forget(self, server: str) -> None:
        """Remove the sign-in at a server, and to whom its own client secret was shown."""
        await self._put(f"server {server}", None)
        await self._put(f"issuer {server}", None)

    async def registration(self, issuer: str) -> Registration | None:
        """What this crib is registered as at this issuer."""
        found = _registration(await self._get(f"client {issuer}"))
        return found if found is not None and found.issuer == issuer else None

    async def keep_registration(self, registration: Registration) -> None:
        """Remember a registration."""
        await self._put(f"client {registration.issuer}", registration.to_json())

    async def forget_registration(self, issuer: str) -> None:
        """Drop a registration that the issuer no longer knows."""
        await self._put(f"client {issuer}", None)

    async def bound_issuer(self, server: str, client_id: str) -> str | None:
        """The issuer that the secret of a definition was shown to; it is never shown to another one."""
        row = await self._get(f"issuer {server}") or {}
        return as_text(row.get("issuer")) if row.get("clientId") == client_id else None

    async def bind_issuer(self, server: str, client_id: str, issuer: str) -> None:
        """Remember whom the secret of a definition is shown to."""
        await self._put(f"issuer {server}", {"clientId": client_id, "issuer": issuer})

    def renewing(self, server: str, seconds: float) -> AbstractAsyncContextManager[bool]:
        """The right to renew the tokens of a server, among all processes; False if it was not free in time."""
        name = hashlib.sha256(server.encode()).hexdigest()[:32]
        return only_process(self._directory / f"{name}.lock", seconds)

    async def _get(self, name: str) -> JsonObject | None:
        return await anyio.to_thread.run_sync(self._shelf.get, name)

    async def _put(self, name: str, value: JsonObject | None) -> None:
        await anyio.to_thread.run_sync(self._shelf.put, name, value)


async def open_tokens(directory: Path) -> Tokens:
    """The sign-ins kept for the home this directory belongs to."""
    return Tokens(await open_shelf(directory), directory)


def _credential(row: JsonObject | None) -> Credential | None:
    client = _registration(as_object((row or {}).get("client")))
    match row:
        case {
            "server": str(server),
            "resource": str(resource),
            "tokenEndpoint": str(token_endpoint),
            "accessToken": str(access_token),
            "obtainedAt": int() | float() as obtained_at,
        } if client is not None:
            return Credential(
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
