"""Decides which URLs may be requested and which addresses may be contacted.

Uses the URL parser of the HTTP client, so that the checked URL is the requested one. Pure. Must never resolve a name:
the address is checked when it is dialled.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.errors import InvalidRequest

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

MAX_URL = 8192

_PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address
_Networks = tuple[IPv4Network | IPv6Network, ...]


def _networks(*texts: str) -> _Networks:
    return tuple(ip_network(text) for text in texts)


# All special-purpose networks of IANA, including those that embed an IPv4 address: no public server uses these, and
# they would bypass the other entries.
_NOT_PUBLIC = _networks(
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")

# Allowed in the owner's own definitions: this machine, its networks, and private overlay networks.
_LOCAL = _networks("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1", "fc00::/7")

# Cloud metadata services, which hand out credentials; no definition needs them.
_METADATA = frozenset(ip_address(text) for text in ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """A URL that may be requested, normalised: lower case, names in punycode, no user, no fragment.

    `local`: the host is written as one of this machine or network.
    """

    text: str
    scheme: str
    host: str
    port: int
    local: bool

    @property
    def origin(self) -> str:
        """Scheme, host and port; a default port is omitted."""
        return f"{self.scheme}://{_netloc(self.scheme, self.host, self.port)}"


def is_public(address: str | Address) -> bool:
    """Return whether an address belongs to the public Internet."""
    parsed = as_address(address)
    if parsed is None or any(parsed in network for network in _NOT_PUBLIC):
        return False
    return isinstance(parsed, IPv4Address) or parsed in _GLOBAL_UNICAST


def is_loopback(address: str | Address) -> bool:
    """Return whether an address is loopback, in its plain form."""
    parsed = as_address(address)
    return parsed is not None and parsed.is_loopback and getattr(parsed, "ipv4_mapped", None) is None


def may_dial(address: str | Address, *, local_allowed: bool) -> bool:
    """Return whether a connection to this address may be opened."""
    parsed = as_address(address)
    if parsed is None or is_public(parsed):
        return parsed is not None
    return local_allowed and parsed not in _METADATA and any(parsed in network for network in _LOCAL)


@lru_cache(maxsize=512)
def check_url(text: str, *, local_allowed: bool) -> CheckedUrl:
    """Return the normalised URL. Raises `url.refused` with the reason.

    `local_allowed` is for URLs in the owner's own definitions: it allows hosts of this machine and network, and plain
    http on this machine. Must never be set for URLs that another party sent.
    """
    parsed = _parse(text)
    scheme = parsed.scheme
    if scheme not in _PORTS or not text.lower().startswith(f"{scheme}://"):
        raise _refusal(text, "only https addresses are used")
    if "@" in re.split("[/?#]", text.partition("://")[2], maxsplit=1)[0]:
        raise _refusal(text, "it carries a user name or password")
    host = _host(text, parsed)
    port = parsed.port if parsed.port is not None else _PORTS[scheme]
    if not 0 < port < 65536:
        raise _refusal(text, "it has no valid port")
    local = _check_place(text, scheme, host, local_allowed)
    path = parsed.raw_path.decode("ascii")
    return CheckedUrl(f"{scheme}://{_netloc(scheme, host, port)}{path}", scheme, host, port, local)


def covers(resource: str, url: str) -> bool:
    """Return whether a URL is this resource or below it, on the same origin."""
    try:
        whole, part = httpx2.URL(resource), httpx2.URL(url)
        same = whole.origin == part.origin
    except (httpx2.InvalidURL, ValueError):
        return False
    return same and f"{part.path.rstrip('/')}/".startswith(f"{whole.path.rstrip('/')}/")


def _parse(text: str) -> "httpx2.URL":
    if len(text) > MAX_URL:
        raise _refusal(text, "it is too long")
    # Parsers disagree about these characters; an ambiguous URL is refused.
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in text):
        raise _refusal(text, "it has spaces, backslashes or invisible characters")
    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL:
        raise _refusal(text, "it cannot be read") from None


def _host(text: str, parsed: "httpx2.URL") -> str:
    host = parsed.raw_host.decode("ascii").removesuffix(".")
    if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]):
        address = as_address(host)
        if address is None or "%" in host or not text.isascii():
            raise _refusal(text, "its host is a disguised IP address")
        return str(address)
    if not host or len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise _refusal(text, "its host is not a name")
    return host


def _check_place(text: str, scheme: str, host: str, local_allowed: bool) -> bool:
    """Raise `url.refused` if the host is not allowed. Returns whether the host is local as written."""
    address = as_address(host)
    this_machine = is_loopback(address) if address is not None else host == "localhost" or host.endswith(".localhost")
    if scheme == "http" and not (local_allowed and this_machine):
        raise _refusal(text, "plain http is only allowed for servers on this machine that its owner configured")
    local = this_machine or (address is not None and not is_public(address))
    if local and not local_allowed:
        raise _refusal(text, "it points to this machine or its network")
    if address is not None and not may_dial(address, local_allowed=local_allowed):
        raise _refusal(text, "its address cannot belong to a server")
    return local


def as_address(address: str | Address) -> Address | None:
    """Return the parsed address, or None for a name."""
    if not isinstance(address, str):
        return address
    try:
        return ip_address(address)
    except ValueError:
        return None


def _netloc(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _PORTS[scheme] else f"{shown}:{port}"


def _refusal(text: str, reason: str) -> InvalidRequest:
    # Only the beginning is shown, without a possible password.
    shown = ascii(re.sub(r"//[^/@]*@", "//…@", text.partition("?")[0]))[1:81]
    return InvalidRequest("url.refused", f"The address {shown.rstrip(chr(39))} was refused: {reason}.")
