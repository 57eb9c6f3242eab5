"""Splits long lists into pages. The number of the page is in the address."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from toolcrib.model.json import JsonObject
from toolcrib.web.console.forms import read_query

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[_T]):
    """One page of a list, and its links for the macro `pages`."""

    items: Sequence[_T]
    links: JsonObject


def list_page(request: Request, items: Sequence[_T], size: int) -> ListPage[_T]:
    """Return the page that the address names; a number beyond the end means the last page."""
    last = max(1, -(-len(items) // size))
    number = min(read_query(request).page(), last)
    first = (number - 1) * size
    shown = items[first : first + size]

    def address(page: int) -> str | None:
        others = [(key, value) for key, value in request.query_params.multi_items() if key != "page" and value]
        query = urlencode([*others, ("page", str(page))] if page > 1 else others)
        return (f"{request.url.path}?{query}" if query else request.url.path) if 1 <= page <= last else None

    links: JsonObject = {
        "page": number,
        "total": len(items),
        "first": first + 1,
        "last": first + len(shown),
        "previous": address(number - 1),
        "next": address(number + 1),
    }
    return ListPage(shown, links)
