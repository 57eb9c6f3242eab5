"""From a server that wants a sign-in to the issuer who can give one: what the server's refusal says, and the metadata.

Documents are read byte for byte: an issuer is compared as text, since two spellings of one address may be two parties.
That is why the SDK's models, which rewrite addresses, are not used.

Above: `signin`, `bearer`. Below: `web`. It must never believe a document about anybody but the one it was asked of.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import orjson

from toolcrib.config.values import as_list, as_object, as_text
from toolcrib.connect.oauth.failures import failed, shown
from toolcrib.connect.urls import CheckedUrl, check_url, covers
from toolcrib.connect.web import get
from toolcrib.model.json import JsonObject

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_ISSUER_PATHS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_HEADERS = {"accept": "application/json", "mcp-protocol-version": "2025-11-25"}


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a refusal says: why, which scopes would do, and where the server describes itself."""

    error: str | None = None
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server as its own metadata describes it. `methods` None means that it does not say."""

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
    """What is to be signed in to, with whom, and which scopes the server knows."""

    resource: str
    issuer: Issuer
    scopes: tuple[str, ...] = ()


def challenge_of(response: httpx2.Response) -> Challenge:
    """The bearer challenge of a refusal; an empty one if there is none."""
    return challenge_in(response.headers.get_list("www-authenticate"))


def challenge_in(headers: Sequence[str]) -> Challenge:
    """The bearer challenge among these headers; an empty one if there is none."""
    for header in headers:
        scheme, _, rest = header.strip().partition(" ")
        if scheme.lower() == "bearer":
            found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
            return Challenge(found.get("error"), split_scopes(found.get("scope")), found.get("resource_metadata"))
    return Challenge()


def split_scopes(text: str | None) -> tuple[str, ...]:
    """The scopes of a text, each once, without what cannot be one."""
    return tuple(dict.fromkeys(scope for scope in (text or "").split(" ") if _SCOPE.fullmatch(scope)))


async def discover(
    client: httpx2.AsyncClient, server: CheckedUrl, challenge: Challenge, *, local_allowed: bool
) -> Discovered:
    """Find out whom to ask for a token (RFC 9728, RFC 8414, OpenID discovery)."""
    described = await _first(client, _resource_places(server, challenge), local_allowed)
    if described is None:
        # Servers of the first specification are their own issuer and do not describe themselves.
        name = server.origin
        metadata = await _first(client, [f"{name}{_ISSUER_PATHS[0]}"], local_allowed)
        if metadata is not None and metadata.get("issuer") == f"{name}/":
            name = f"{name}/"
        resource = server.text.rstrip("/") if server.text == f"{server.origin}/" else server.text
        return Discovered(resource, _issuer(name, metadata, local_allowed))
    resource = as_text(described.get("resource")) or ""
    if not covers(resource, server.text):
        raise failed(f"the server says it is {shown(resource)}, which is not its address.")
    name = next(iter(_texts(described, "authorization_servers") or ()), None)
    if name is None:
        raise failed("the server names nobody who could issue a token for it.")
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
    """The first of these documents that is there. One that cannot be had right now ends the search: it might be it."""
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
    """The metadata of the issuer of this name, or a failure: it must be its own, and offer what is safe."""
    if metadata is None:
        raise failed(f"{shown(name)} publishes no metadata that says how to sign in.")
    if metadata.get("issuer") != name:
        raise failed(f"the metadata of {shown(name)} belongs to {shown(str(metadata.get('issuer')))}.")
    if "S256" not in (_texts(metadata, "code_challenge_methods_supported") or ()):
        raise failed(f"{shown(name)} does not offer PKCE with S256, without which a sign-in can be stolen.")

    def endpoint(key: str) -> str | None:
        text = as_text(metadata.get(key))
        return check_url(text, local_allowed=local_allowed).text if text else None

    authorization, token = endpoint("authorization_endpoint"), endpoint("token_endpoint")
    if authorization is None or token is None:
        raise failed(f"the metadata of {shown(name)} lacks an endpoint.")
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


def read_object(content: bytes) -> JsonObject | None:
    """The JSON object of an answer, if it is one."""
    try:
        return as_object(orjson.loads(content))
    except orjson.JSONDecodeError:
        return None


def _scopes(document: JsonObject) -> tuple[str, ...]:
    return split_scopes(" ".join(_texts(document, "scopes_supported") or ()))


def _texts(document: JsonObject, key: str) -> tuple[str, ...] | None:
    listed = as_list(document.get(key))
    return tuple(text for text in listed if isinstance(text, str)) if listed is not None else None
