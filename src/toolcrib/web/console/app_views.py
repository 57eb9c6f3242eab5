"""MCP Apps (SEP-1865) that the console hosts: the page of a tool's server, the sandbox it runs in, and its requests.

A page runs in a frame with an opaque origin and a content policy of its own. It reaches nothing but the console that
embeds it, which forwards two kinds of requests: calls of tools of the same server, and reads of its resources. They are
made as `app of SERVER`, a principal that is never by hand: what no rule allows waits for an approval.

Domains that a page declares are left out of its policy until the owner allows them. Views live in memory.

Must never let a page reach another server, and never put a declared domain into a policy unchecked.
"""

import binascii
import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Final

from toolcrib.host import Crib
from toolcrib.model.apps import APP_SCHEME, APP_TYPE, app_uri, is_callable_by_apps
from toolcrib.model.errors import InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject, digest, is_array, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INVALID_PARAMS, META, METHOD_NOT_FOUND
from toolcrib.model.sources import ProtocolError, ReportProgress
from toolcrib.model.tools import Tool, ToolRef

_KEPT: Final = 32
"""Views that are kept. The oldest is dropped first."""
_IN_FLIGHT: Final = 8
"""Requests of one view at a time."""
_FAILED: Final = -32000
_DOMAIN: Final = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*(?::[0-9]{1,5})?/?",
    re.ASCII | re.IGNORECASE,
)
_MOST_DOMAINS: Final = 50
_LISTS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains that a page declares, by list of `_meta.ui.csp`. `invalid` are those that are no origin."""

    valid: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    invalid: tuple[str, ...] = ()

    @classmethod
    def of(cls, declared: Json) -> "Domains":
        """Read `_meta.ui.csp`."""
        valid: dict[str, tuple[str, ...]] = {}
        invalid: list[str] = []
        for name in _LISTS:
            found: Json = declared.get(name) if is_object(declared) else None
            texts = [str(each) for each in found[:_MOST_DOMAINS]] if is_array(found) else []
            valid[name] = tuple(dict.fromkeys(each for each in texts if _DOMAIN.fullmatch(each)))
            invalid += [each for each in texts if not _DOMAIN.fullmatch(each)]
        return cls({name: found for name, found in valid.items() if found}, tuple(invalid))

    def to_json(self) -> JsonObject:
        """Return the lists as the protocol has them."""
        return {name: list(found) for name, found in self.valid.items()}


NO_DOMAINS: Final = Domains()
INLINE: Final = "'unsafe-inline'"


def policy_headers(granted: Domains) -> dict[str, str]:
    """Return the headers that limit a page to the granted domains.

    Content policies do not cover WebRTC. `Connection-Allowlist` does, in browsers that know it: the console asks the
    browser with `PROBE_PAGE` before it shows an app.
    """
    origins = dict.fromkeys(each.rstrip("/") for found in granted.valid.values() for each in found)
    allowed = " ".join(f'"{each}/*"' for each in origins)
    return {"content-security-policy": _policy(granted), "connection-allowlist": f"({allowed})"}


PROBE_PAGE: Final = """<!doctype html><title>Probe</title><script>
const report = (connected) => parent.postMessage({connected}, "*");
fetch("/healthz", {mode: "no-cors"}).then(() => report(true), () => report(false));
</script>"""
"""Reports whether it could connect. The console opens it with `Connection-Allowlist` and without."""
PROBE_POLICY: Final = {"content-security-policy": f"default-src 'none'; script-src {INLINE}; connect-src 'self'"}
NO_CONNECTIONS: Final = {"connection-allowlist": "()"}


def _policy(granted: Domains) -> str:
    """Return the content policy of a page. `'self'` is absent: it would mean the crib."""

    def sources(name: str, *others: str) -> str:
        return " ".join((*others, *granted.valid.get(name, ()))) or "'none'"

    files = "resourceDomains"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {sources(files, INLINE)}",
            f"style-src {sources(files, INLINE)}",
            f"img-src {sources(files, 'data:', 'blob:')}",
            f"media-src {sources(files, 'data:', 'blob:')}",
            f"font-src {sources(files, 'data:')}",
            "worker-src blob:",
            f"connect-src {sources('connectDomains')}",
            f"frame-src {sources('frameDomains')}",
            f"base-uri {sources('baseUriDomains')}",
        )
    )


@dataclass(slots=True)
class AppView:
    """One page, shown for one call. `html` is None until the page was read."""

    id: str
    tool: Tool
    uri: str
    principal: Principal
    arguments: JsonObject
    result: JsonObject
    html: str | None = None
    declared: Domains = NO_DOMAINS
    in_flight: int = 0

    @property
    def server(self) -> str:
        """The server whose app it is."""
        return self.tool.ref.server


class AppViews:
    """The views that the console shows."""

    def __init__(self, crib: Crib) -> None:
        self._crib = crib
        self._views: OrderedDict[str, AppView] = OrderedDict()
        self._allowed: set[tuple[str, str, str]] = set()

    def open(self, person: Principal, tool: Tool, arguments: JsonObject, result: JsonObject) -> AppView | None:
        """Return a view for a finished call, or None if the tool has no app."""
        uri = app_uri(tool)
        if uri is None or not uri.startswith(APP_SCHEME):
            return None
        caller = Principal("owner", f"app of {tool.ref.server}", "web", "default", cwd=person.cwd)
        view = AppView(token_urlsafe(16), tool, uri, caller, arguments, result)
        self._views[view.id] = view
        while len(self._views) > _KEPT:
            self._views.popitem(last=False)
        return view

    def find(self, id: str) -> AppView:
        """Return a view. Raises `NotFound`."""
        view = self._views.get(id)
        if view is None:
            raise NotFound("app.closed", "This app is no longer open. Call its tool again.")
        return view

    async def load(self, view: AppView) -> None:
        """Read the page of a view from its server, once. Raises `ToolcribError`."""
        if view.html is not None:
            return
        await self._crib.ready(view.principal, view.server)
        answer = await self._read(view, view.uri)
        contents: Json = answer.get("contents")
        first: Json = contents[0] if is_array(contents) and contents else None
        if not is_object(first) or str(first.get("mimeType")).replace(" ", "").lower() != APP_TYPE:
            raise InvalidRequest("app.invalid", f"{view.uri} of {view.server} is not a page of type {APP_TYPE}.")
        view.declared = Domains.of(_csp_of(first) or _csp_of(self._find_resource(view)))
        view.html = _html(first)

    def granted(self, view: AppView) -> Domains:
        """Return the domains that the owner allowed this page."""
        return view.declared if self._key(view) in self._allowed else NO_DOMAINS

    def grant(self, view: AppView, *, allowed: bool) -> None:
        """Allow or withdraw the declared domains, for this page as long as it declares the same ones."""
        (self._allowed.add if allowed else self._allowed.discard)(self._key(view))

    async def answer(self, view: AppView, method: str, params: JsonObject, progress: ReportProgress) -> JsonObject:
        """Return the JSON-RPC answer to a request of the page, without its id."""
        if view.in_flight >= _IN_FLIGHT:
            return _error(_FAILED, f"The app has {_IN_FLIGHT} requests in flight already.")
        view.in_flight += 1
        try:
            await self._crib.ready(view.principal, view.server)
            if method == "tools/call":
                return {"result": await self._call(view, params, progress)}
            if method == "resources/read":
                uri: Json = params.get("uri")
                if not isinstance(uri, str):
                    return _error(INVALID_PARAMS, "`uri` must be a string.")
                return {"result": await self._read(view, uri)}
            return _error(METHOD_NOT_FOUND, f"The console does not answer {method[:100]!r}.")
        except ProtocolError as error:
            return _error(error.code, error.message)
        except NotFound as error:
            return _error(INVALID_PARAMS, error.message)
        except ToolcribError as error:
            return _error(_FAILED, error.message)
        finally:
            view.in_flight -= 1

    async def _call(self, view: AppView, params: JsonObject, progress: ReportProgress) -> JsonObject:
        name: Json = params.get("name")
        arguments: Json = params.get("arguments", {})
        if not isinstance(name, str) or not is_object(arguments):
            raise InvalidRequest("request.invalid", "`name` must be a string and `arguments` an object.")
        ref = ToolRef(view.server, name)
        if not is_callable_by_apps(self._crib.gate.find(view.principal, ref)):
            raise InvalidRequest("request.invalid", f"{ref} is not for apps.")
        called = await self._crib.gate.call(view.principal, ref, arguments, door="console", progress=progress)
        return called.result.to_json()

    async def _read(self, view: AppView, uri: str) -> JsonObject:
        params: JsonObject = {"uri": uri}
        return await self._crib.gate.request(view.principal, view.server, "resources/read", params, door="console")

    def _find_resource(self, view: AppView) -> JsonObject:
        found = (item.definition for item in self._crib.gate.resources(view.principal) if item.server == view.server)
        nothing: JsonObject = {}
        return next((each for each in found if each.get("uri") == view.uri), nothing)

    @staticmethod
    def _key(view: AppView) -> tuple[str, str, str]:
        return view.server, view.uri, digest(view.declared.to_json())


def _csp_of(item: JsonObject) -> Json:
    meta: Json = item.get(META)
    ui: Json = meta.get("ui") if is_object(meta) else None
    return ui.get("csp") if is_object(ui) else None


def _html(content: JsonObject) -> str:
    text: Json = content.get("text")
    if isinstance(text, str):
        return text
    try:
        return b64decode(str(content.get("blob")), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidRequest("app.invalid", "The page of the app is neither text nor base64 of UTF-8.") from error


def _error(code: int, message: str) -> JsonObject:
    return {"error": {"code": code, "message": message}}
