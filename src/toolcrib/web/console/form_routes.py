"""Addresses of forms that are opened or reloaded: a browser that shows the answer of a form requests its address.

The nearest page above the address is opened instead. Pages come first: an address that is both stays a page.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolcrib.web.console.project_links import with_project

_READING: Final = frozenset({"GET", "HEAD"})
_PARAMETER: Final = re.compile(r"\{[^}]*\}")


class FormRoute(Route):
    """A route that only takes forms. `levels` is the number of segments to cut from its address to get to a page."""

    levels = 1

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a form. Redirect a browser that opens the address."""
        accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        if scope["method"] in _READING and b"application/json" not in accepted:
            page, chosen = self.page(scope["path"]), parse_qs(scope["query_string"].decode("latin-1")).get("cwd")
            to = with_project(page, chosen[0]) if chosen else page
            await RedirectResponse(to, 303)(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    def page(self, path: str) -> str:
        """Return the page above an address of this route, as an address."""
        return "/" + quote("/".join(path.strip("/").split("/")[: -self.levels]))


def find_pages(routes: Sequence[Route]) -> Sequence[FormRoute]:
    """Set the page of each form, and return the forms whose address is no page itself."""
    pages = {_shape(each.path) for each in routes if "GET" in (each.methods or ())} | {"/"}
    forms = [each for each in routes if isinstance(each, FormRoute)]
    for form in forms:
        segments = _shape(form.path).strip("/").split("/")
        kept = next(kept for kept in range(len(segments) - 1, -1, -1) if "/" + "/".join(segments[:kept]) in pages)
        form.levels = len(segments) - kept
    return [each for each in forms if _shape(each.path) not in pages]


def page_above(forms: Sequence[FormRoute], path: str) -> str | None:
    """Return the page above the address of a form, or None if no form has this address."""
    return next((form.page(path) for form in forms if form.path_regex.match(path)), None)


def _shape(path: str) -> str:
    return _PARAMETER.sub("{}", path)
