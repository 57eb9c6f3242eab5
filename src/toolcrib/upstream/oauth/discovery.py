"""OAuth discovery: from a server's challenge and metadata to the issuer that can grant a token.

Issuers are compared byte for byte, since two spellings of one URL may be two parties. The SDK's models normalize URLs
and are therefore not used.

Must never trust a document about any party but the one that served it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import orjson

from toolcrib.base.network.guarded_client import get
from toolcrib.base.network.urls import CheckedUrl, check_url, covers
from toolcrib.model.json import JsonObject, as_list, as_object, as_text
from toolcrib.model.protocol import HANDSHAKE_VERSION
from toolcrib.upstream.oauth.demand import Challenge
from toolcrib.upstream.oauth.failures import failed, printable

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_ISSUER_PATHS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_HEADERS = {"accept": "application/json", "mcp-protocol-version": HANDSHAKE_VERSION}


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server's metadata. `methods` is None if it lists none."""

    name: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    sends_iss: bool = False
    reads_client_documents: bool = False
    methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Discovered:
    """The resource to sign in to, its issuer, and the scopes the server supports."""

    resource: str
    issuer: Issuer
    scopes: tuple[str, ...] = ()


def challenge_of(response: httpx2.Response) -> Challenge:
    """Return the bearer challenge of a response, empty if there is none."""
    return challenge_in(response.headers.get_list("www-authenticate"))


def challenge_in(headers: Sequence[str]) -> Challenge:
    """Return the bearer challenge among these headers, empty if there is none."""
    for header in headers:
        scheme, _, rest = header.strip().partition(" ")
        if scheme.lower() == "bearer":
            found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
            return Challenge(found.get("error"), split_scopes(found.get("scope")), found.get("resource_metadata"))
    return Challenge()


def split_scopes(text: str | None) -> tuple[str, ...]:
    """Return the distinct valid scopes in a text."""
    return tuple(dict.fromkeys(scope for scope in (text or "").split(" ") if _SCOPE.fullmatch(scope)))


async def discover(
    client: httpx2.AsyncClient, server: CheckedUrl, challenge: Challenge, *, local_allowed: bool
) -> Discovered:
    """Find the issuer for a server (RFC 9728, RFC 8414, OpenID discovery)."""
    described = await _first(client, _resource_places(server, challenge), local_allowed)
    if described is None:
        # Servers of the first specification are their own issuer and publish no resource metadata.
        name = server.origin
        metadata = await _first(client, [f"{name}{_ISSUER_PATHS[0]}"], local_allowed)
        resource = server.text.rstrip("/") if server.text == f"{server.origin}/" else server.text
        if metadata is None:
            return Discovered(resource, _issuer_by_default_paths(name))
        if metadata.get("issuer") == f"{name}/":
            name = f"{name}/"
        return Discovered(resource, _issuer(name, metadata, local_allowed))
    resource = as_text(described.get("resource")) or ""
    if not covers(resource, server.text):
        raise failed(f"the server's metadata is for {printable(resource)}, which is not its address.")
    name = next(iter(_texts(described, "authorization_servers") or ()), None)
    if name is None:
        raise failed("the server names no authorization server.")
    metadata = await _first(client, _issuer_places(check_url(name, local_allowed=local_allowed)), local_allowed)
    return Discovered(resource, _issuer(name, metadata, local_allowed), _scopes(described))


def _resource_places(server: CheckedUrl, challenge: Challenge) -> list[str]:
    path = urlsplit(server.text).path.rstrip("/")
    places = [challenge.resource_metadata, f"{server.origin}{_RESOURCE_PATH}{path}", f"{server.origin}{_RESOURCE_PATH}"]
    return list(dict.fromkeys(place for place in places if place))


def _issuer_places(issuer: CheckedUrl) -> list[str]:
    path = urlsplit(issuer.text).path.rstrip("/")
    places = [f"{issuer.origin}{known}{path}" for known in _ISSUER_PATHS]
    return list(dict.fromkeys([*places, f"{issuer.origin}{path}{_ISSUER_PATHS[1]}"]))


async def _first(client: httpx2.AsyncClient, places: Iterable[str], local_allowed: bool) -> JsonObject | None:
    """Return the first document found. A temporary error raises, because that document might be the right one."""
    for place in places:
        checked = check_url(place, local_allowed=local_allowed)
        response = await get(client, checked.text, _HEADERS)
        if response.status_code == 429 or response.status_code >= 500:
            raise failed(f"{checked.origin} answered {response.status_code} when asked for its metadata.")
        document = read_object(response.content) if response.status_code == 200 else None
        if document is not None:
            return document
    return None


def _issuer(name: str, metadata: JsonObject | None, local_allowed: bool) -> Issuer:
    """Validate an issuer's metadata: it must name this issuer and support PKCE with S256."""
    if metadata is None:
        raise failed(f"{printable(name)} publishes no sign-in metadata.")
    if metadata.get("issuer") != name:
        raise failed(f"the metadata of {printable(name)} belongs to {printable(str(metadata.get('issuer')))}.")
    if "S256" not in (_texts(metadata, "code_challenge_methods_supported") or ()):
        raise failed(f"{printable(name)} does not support PKCE with S256, which is required.")

    def endpoint(key: str) -> str | None:
        text = as_text(metadata.get(key))
        return check_url(text, local_allowed=local_allowed).text if text else None

    authorization, token = endpoint("authorization_endpoint"), endpoint("token_endpoint")
    if authorization is None or token is None:
        raise failed(f"the metadata of {printable(name)} lacks an endpoint.")
    return Issuer(
        name=name,
        authorization_endpoint=authorization,
        token_endpoint=token,
        registration_endpoint=endpoint("registration_endpoint"),
        sends_iss=metadata.get("authorization_response_iss_parameter_supported") is True,
        reads_client_documents=metadata.get("client_id_metadata_document_supported") is True,
        methods=_texts(metadata, "token_endpoint_auth_methods_supported"),
        scopes=_scopes(metadata),
    )


def _issuer_by_default_paths(origin: str) -> Issuer:
    """Return the endpoints that specification 2025-03-26 defines for a server without metadata."""
    return Issuer(origin, f"{origin}/authorize", f"{origin}/token", f"{origin}/register")


def read_object(content: bytes) -> JsonObject | None:
    """Parse a JSON object. Returns None for anything else."""
    try:
        return as_object(orjson.loads(content))
    except orjson.JSONDecodeError:
        return None


def _scopes(document: JsonObject) -> tuple[str, ...]:
    return split_scopes(" ".join(_texts(document, "scopes_supported") or ()))


def _texts(document: JsonObject, key: str) -> tuple[str, ...] | None:
    listed = as_list(document.get(key))
    return tuple(text for text in listed if isinstance(text, str)) if listed is not None else None
