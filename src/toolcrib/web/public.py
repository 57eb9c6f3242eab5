"""The address that other machines can reach: when it is allowed, and the checks in front of the guard.

A crib always listens on loopback, for the owner. With `--host`, it also listens on another address, with TLS or behind
a proxy that ends TLS. There, named tokens are the only login: the owner's token is accepted only from this machine, and
cookies are ignored. Without TLS, only the proxy connects, and other nodes with signed requests.

Must never admit a request that the guard would refuse.
"""

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.base.settings import Settings
from toolcrib.gate.approvals.links import LINK_PATH
from toolcrib.gate.principals import Principals
from toolcrib.host import Crib
from toolcrib.model.errors import ConfigError, Denied, ToolcribError
from toolcrib.nodes.cluster_secret import SIGNATURE_HEADER
from toolcrib.web import problems
from toolcrib.web.guard import LOGIN_PATH, OPEN_PATHS
from toolcrib.web.listen import bind_any

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_FORWARDED = b"x-forwarded-for"
_SIGNED = SIGNATURE_HEADER.encode()
_NOT_PASSED_ON = frozenset({b"host", b"origin", b"cookie", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"})
_WIDEST = {4: 8, 6: 7}
"""The shortest prefixes of proxies' networks: those of private addresses."""
_TOKEN_HINT = "Create one first: `toolcrib tokens create NAME`, with the same database."
_SAFETY_HINT = "Add `--tls-cert` and `--tls-key`, or `--behind-proxy` with the addresses of the proxy that ends TLS."


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """An address that other machines can reach, and how connections to it are protected."""

    family: socket.AddressFamily
    host: str
    tls: ssl.SSLContext | None
    proxies: tuple[_Network, ...]

    def url(self, port: int, databases: str) -> str:
        """Return the URL at which other nodes reach this one. `databases` are the hosts of the database."""
        host = self.host if not ipaddress.ip_address(self.host).is_unspecified else _address_towards(databases)
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def public_address(settings: Settings) -> PublicAddress | None:
    """Return the configured address if other machines can reach it; None for loopback. Raises `bind.refused`."""
    if settings.host.lower() == "localhost":
        return None
    try:
        address = ipaddress.ip_address(settings.host)
    except ValueError:
        message = f"{settings.host!r} is not an IP address of this machine."
        raise ConfigError("bind.refused", message, "Use the address itself, such as 10.0.0.5.") from None
    if address.is_loopback:
        return None
    if settings.tls_cert is None and not settings.behind_proxy:
        message = f"Other machines can reach {settings.host}, and connections to it would not be encrypted."
        raise ConfigError("bind.refused", message, _SAFETY_HINT)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    proxies = tuple(ipaddress.ip_network(each) for each in settings.behind_proxy)
    if wide := next((each for each in proxies if each.prefixlen < _WIDEST[each.version]), None):
        message = f"--behind-proxy {wide} is not the network of a proxy: it has addresses of other organisations."
        raise ConfigError("bind.refused", message, "Name the addresses of the proxy, such as 10.0.0.1.")
    return PublicAddress(family, str(address), _tls(settings), proxies)


def check_login(settings: Settings, crib: Crib) -> None:
    """Raise `bind.refused` if there is no named token: nothing but the owner's token could be used."""
    if not crib.tokens.live:
        message = f"Other machines can reach {settings.host}, and there is no named token to sign in with."
        raise ConfigError("bind.refused", message, _TOKEN_HINT)


def bind_public(public: PublicAddress, port: int) -> socket.socket:
    """Return a socket bound to the public address. Raises `bind.occupied`."""
    return bind_any(public.family, public.host, port)


class PublicEntrance:
    """Checks requests from other machines, then passes them to the guard as requests to its own address."""

    def __init__(
        self, app: ASGIApp, principals: Principals, public: PublicAddress, own: str, link_address: str | None = None
    ) -> None:
        self._has_links = link_address is not None
        self._app = app
        self._principals = principals
        self._public = public
        self._own = own.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            inner = self._admit(scope)
        except ToolcribError as error:
            await problems.answer(send, error, as_page=False, target="/")
            return
        await self._app(inner, receive, send)

    def _admit(self, scope: Scope) -> Scope:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        given = dict(headers)
        peer = _parse_address((scope.get("client") or ("",))[0])
        self._check_peer(peer, given, scope["path"])
        if self._has_links and scope["path"].startswith(LINK_PATH):
            return scope  # the guard compares Host and Origin with the address of the links
        _check_origin(given)
        if scope["path"] == LOGIN_PATH:
            raise Denied("auth.owner_local", "The console is served only on the machine of the node.")
        client = self._client(peer, given)
        if peer is None or not peer.is_loopback or self._is_proxy(peer):
            self._refuse_owner(given)
        passed_on = [(name, value) for name, value in headers if name not in _NOT_PASSED_ON]
        return {**scope, "client": (str(client or ""), 0), "headers": [(b"host", self._own), *passed_on]}

    def _check_peer(self, peer: _Address | None, headers: dict[bytes, bytes], path: str) -> None:
        """Raise unless the connection is encrypted, or comes from this machine, the proxy or another node."""
        if self._public.tls is not None or self._is_proxy(peer):
            return
        if _SIGNED in headers and path not in OPEN_PATHS and not path.startswith(LINK_PATH):
            return  # the guard verifies the signature
        if peer is None or not peer.is_loopback:
            raise Denied("host.refused", "This node accepts connections only from its proxy.")

    def _is_proxy(self, peer: _Address | None) -> bool:
        return peer is not None and any(peer in network for network in self._public.proxies)

    def _client(self, peer: _Address | None, headers: dict[bytes, bytes]) -> _Address | None:
        """Return the address of the client: the last one in `X-Forwarded-For` that is not a proxy.

        Returns None if a proxy does not name its client.
        """
        if not self._is_proxy(peer):
            return peer
        for text in reversed(headers.get(_FORWARDED, b"").decode("latin-1").split(",")):
            address = _parse_address(text.strip())
            if address is None or not self._is_proxy(address):
                return address
        return None

    def _refuse_owner(self, headers: dict[bytes, bytes]) -> None:
        _, _, token = headers.get(b"authorization", b"").partition(b" ")
        known = self._principals.authenticate(token.strip())
        if known is not None and known.principal.is_owner:
            raise Denied("auth.owner_local", "The owner's token is accepted only from the machine of the node.")


def _check_origin(headers: dict[bytes, bytes]) -> None:
    """Raise for a request of a page from another site."""
    origin = headers.get(b"origin")
    if origin is not None and urlsplit(origin.decode("latin-1")).netloc.encode() != headers.get(b"host", b""):
        raise Denied("origin.refused", "Requests from other origins are not allowed.")
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise Denied("origin.refused", "Cross-site requests are not allowed.")


def _parse_address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            "bind.refused", f"The TLS certificate {settings.tls_cert} cannot be used: {reason}."
        ) from error
    return context


def _address_towards(databases: str) -> str:
    """Return the address of this machine on the way to the first of these hosts; loopback if they are on it."""
    for host in databases.split(","):
        if not host or host.startswith("/"):  # a Unix socket
            continue
        with contextlib.suppress(OSError):
            family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
    return "127.0.0.1"
