"""A real authorization server and a protected resource on loopback, built with the SDK; they can misbehave.

The issuer rotates refresh tokens. Like real ones, it treats the use of a spent token as theft and revokes its family.
"""

import secrets
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import anyio
import httpx2
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    ProviderTokenVerifier,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deadlines import stretched
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import Web
from toolcrib.base.secret_store import FileSecretStore
from toolcrib.model.errors import ToolcribError
from toolcrib.model.servers import Auth
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential
from toolcrib.upstream.oauth.sign_in import SignIn, Target

OPTIONS = ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write", "admin"], default_scopes=["read"])


@dataclass
class Refresh:
    """A refresh token and the family it belongs to."""

    token: RefreshToken
    family: int
    spent: bool = False


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Issues tokens to every client; counts refreshes and thefts."""

    def __init__(self) -> None:
        self.issuer = ""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, Refresh] = {}
        self.revoked_families: set[int] = set()
        self.refreshes = 0
        self.reuses = 0
        self.expires_in: int | None = 3600
        self.grants: tuple[str, ...] | None = None
        self.denies: str | None = None
        self.iss: str | None = "own"

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.denies:
            raise AuthorizeError("access_denied", self.denies)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(20),
            scopes=list(self.grants) if self.grants is not None else params.scopes or ["read"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        iss = self.issuer if self.iss == "own" else self.iss
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=iss)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes, authorization_code.resource, len(self.refresh))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        found = self.refresh.get(refresh_token)
        if found is not None and found.spent:
            self.reuses += 1
            self.revoked_families.add(found.family)
        return found.token if found is not None and found.family not in self.revoked_families else None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        found = self.refresh[refresh_token.token]
        if found.spent:
            raise TokenError("invalid_grant")
        found.spent = True
        return self._issue(client.client_id, scopes, refresh_token.resource, found.family)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def _issue(self, client_id: str, scopes: list[str], resource: str | None, family: int) -> OAuthToken:
        access = AccessToken(token=secrets.token_urlsafe(20), client_id=client_id, scopes=scopes, resource=resource)
        refresh = RefreshToken(token=secrets.token_urlsafe(20), client_id=client_id, scopes=scopes, resource=resource)
        self.access[access.token] = access
        self.refresh[refresh.token] = Refresh(refresh, family)
        return OAuthToken(
            access_token=access.token,
            refresh_token=refresh.token,
            expires_in=self.expires_in,
            scope=" ".join(scopes),
        )


@dataclass
class Authority:
    """The issuer and the resource it protects, on one origin. The fields control the answers."""

    provider: Provider = field(default_factory=Provider)
    url: str = ""
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    resource_changes: dict[str, object] = field(default_factory=dict[str, object])
    required_scopes: list[str] = field(default_factory=lambda: ["read"])
    token_answer: tuple[int, bytes] | None = None
    token_hangs: anyio.Event | None = None
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    authorizations: list[str | None] = field(default_factory=list[str | None])
    challenges: tuple[str, ...] = ("GET", "POST")
    resource_metadata_path: str = "/.well-known/oauth-protected-resource/mcp"
    publishes: bool = True

    @property
    def issuer(self) -> str:
        """The issuer, with a trailing slash as the SDK writes it."""
        return f"{self.url}/"

    @property
    def resource(self) -> str:
        """The URL of the protected server."""
        return f"{self.url}/mcp"

    def app(self) -> ASGIApp:
        """Return the application."""
        issuer = AnyHttpUrl(self.url)
        self.provider.issuer = self.issuer
        routes = [
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/.well-known/oauth-protected-resource/mcp", self._describe),
            Route("/elsewhere", self._describe),
            Route("/mcp", self._protected, methods=["GET", "POST"]),
            *create_auth_routes(self.provider, issuer, client_registration_options=OPTIONS),
        ]
        backend = BearerAuthBackend(ProviderTokenVerifier(self.provider))
        checked = [Middleware(AuthenticationMiddleware, backend=backend)]
        return _Recorder(self, Starlette(routes=routes, middleware=checked))

    async def _protected(self, request: Request) -> Response:
        """Refuse a caller without a token, with a challenge for the methods in `challenges`."""
        metadata_url = AnyHttpUrl(f"{self.url}{self.resource_metadata_path}")
        if request.method in self.challenges:
            return _Asgi(RequireAuthMiddleware(self._resource, self.required_scopes, metadata_url))
        return _Asgi(self._resource) if isinstance(request.user, AuthenticatedUser) else Response(status_code=405)

    async def _metadata(self, request: Request) -> Response:
        if not self.publishes:
            return Response(status_code=404)
        own = build_metadata(AnyHttpUrl(self.url), None, OPTIONS, RevocationOptions())
        return JSONResponse(_changed(own.model_dump(mode="json", exclude_none=True), self.metadata))

    async def _describe(self, request: Request) -> Response:
        if not self.publishes or request.url.path != self.resource_metadata_path:
            return Response(status_code=404)
        own = {"resource": self.resource, "authorization_servers": [self.issuer], "scopes_supported": ["read"]}
        return JSONResponse(_changed(own, self.resource_changes))

    async def _resource(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"open": True})(scope, receive, send)


class _Asgi(Response):
    """A response that another application sends."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _changed(own: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in {**own, **changes}.items() if value is not None}


class _Recorder:
    """Records requests, and lets the token endpoint fail."""

    def __init__(self, authority: Authority, app: ASGIApp) -> None:
        self._authority = authority
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/mcp":
            self._authority.authorizations.append(Request(scope).headers.get("authorization"))
        if scope["path"] == "/token":
            body = await Request(scope, receive).body()
            self._authority.forms.append(dict(httpx2.QueryParams(body.decode()).items()))
            if self._authority.token_hangs is not None:
                await self._authority.token_hangs.wait()
            if self._authority.token_answer is not None:
                status, content = self._authority.token_answer
                await Response(content, status, media_type="application/json")(scope, receive, send)
                return
            receive = _replay(body)
        await self._app(scope, receive, send)


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


@asynccontextmanager
async def serve_on(app: ASGIApp, sock: socket.socket, certificate: Path | None = None) -> AsyncGenerator[None]:
    """Serve an application on a bound socket; with a certificate and its key over TLS."""
    config = uvicorn.Config(
        app,
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
        access_log=False,
        ssl_certfile=certificate,
    )
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: server.serve(sockets=[sock]))
        try:
            yield
        finally:
            server.should_exit = True


def listening_socket() -> tuple[socket.socket, int]:
    """Return a listening socket on loopback and its port. Early connections wait in its queue."""
    # The protocol is named because the event loop sets TCP_NODELAY only on sockets that name it.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    return sock, sock.getsockname()[1]


@asynccontextmanager
async def authority(site: Authority | None = None) -> AsyncGenerator[Authority]:
    """Run the issuer and its resource."""
    made = site or Authority()
    sock, port = listening_socket()
    made.url = f"http://127.0.0.1:{port}"
    async with serve_on(made.app(), sock):
        yield made


def target(site: Authority, auth: Auth | None = None, document: str | None = None, port: int = 0) -> Target:
    """Return the resource as a target to sign in to."""
    url = check_url(site.resource, local_allowed=True)
    return Target("lab", url, True, {}, auth or Auth(), document, port)


@cache
def shared_web() -> Web:
    """Return one web client for all tests, since reading the certificates takes long."""
    return Web()


def credentials_in(folder: Path) -> CredentialStore:
    """Return a store of credentials in a file."""
    directory = folder / "oauth"
    directory.mkdir(mode=0o700, exist_ok=True)
    return CredentialStore(directory, store=FileSecretStore(directory / "credentials.json"))


async def visit(url: str) -> httpx2.Response:
    """Follow a URL and its redirects, as a browser does."""
    async with browser(follow_redirects=True) as client:
        return await client.get(url)


def browser(*, follow_redirects: bool = False) -> httpx2.AsyncClient:
    """Return an HTTP client without the crib's address checks."""
    context = shared_web().trust()
    return httpx2.AsyncClient(verify=context, trust_env=False, follow_redirects=follow_redirects, timeout=stretched(10))


async def complete(attempt: SignIn) -> OAuthCredential:
    """Follow the sign-in URL to its end and return the credential."""
    outcome: list[OAuthCredential | ToolcribError] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(visit, attempt.url)
            try:
                outcome.append(await attempt.finish())
            except ToolcribError as error:
                outcome.append(error)
                tasks.cancel_scope.cancel()
    if isinstance(outcome[0], ToolcribError):
        raise outcome[0]
    return outcome[0]
