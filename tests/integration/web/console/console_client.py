"""A browser without scripts: requests pages of a real crib with a cookie and parses them."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from http_clients import PLAIN
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.web.run import hold

VOID = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta", "wbr"})
DOCUMENT = "document"


@dataclass
class Element:
    """An HTML element with its children."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: "list[Element | str]" = field(default_factory=list["Element | str"])

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        return " ".join("".join(self._texts()).split())

    @property
    def raw_text(self) -> str:
        """All text inside, unchanged."""
        return "".join(self._texts())

    def __iter__(self) -> "Iterator[Element]":
        """Yield every element inside, in document order."""
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child

    def all(self, tag: str | None = None, **attributes: str) -> "list[Element]":
        """Return the elements with this tag and these attributes; `class_` means one of its classes."""
        return [each for each in self if tag in (None, each.tag) and each._fits(attributes)]

    def one(self, tag: str | None = None, **attributes: str) -> "Element":
        """Return the only matching element."""
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} of {tag} {attributes} in: {self.text[:500]}"
        return found[0]

    def _fits(self, wanted: Mapping[str, str]) -> bool:
        for name, value in wanted.items():
            have = self.attributes.get(name.rstrip("_").replace("_", "-"))
            if have is None or (value not in have.split() if name == "class_" else value != have):
                return False
        return True

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()


class _Reader(HTMLParser):
    """Builds the tree. Raises for an end tag that does not match, because the console's pages must be well-formed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element(DOCUMENT)
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(html: str) -> Element:
    """Parse a page or a part of one; it must be well-formed and inert."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root]
    check_inert(reader.root)
    return reader.root


SCHEMES = ("", "http", "https", "data", "mailto")
DEEP_LINKS = ("cursor", "vscode")


def check_inert(root: Element) -> None:
    """Check that only the console's own scripts and styles apply, and that ids are unique."""
    ids = [each.attributes["id"] for each in root if "id" in each.attributes]
    assert len(ids) == len(set(ids)), sorted(id for id in ids if ids.count(id) > 1)
    for element in root:
        if element.tag == "iframe":  # only the sandboxed pages of apps
            assert element.attributes["sandbox"] == "allow-scripts allow-forms", element
            assert element.attributes["data-src"].startswith("/app-pages/"), element
        assert element.tag not in ("object", "embed", "base", "style", "math"), element
        if element.tag == "svg":  # only the shapes of the console's plots
            assert {each.tag for each in element} <= {"svg", "rect", "polyline"}, element
            assert element.attributes["class"] in ("plot", "spark"), element
        assert element.tag != "script" or (
            element.attributes["src"].startswith("/static/") and not element.raw_text.strip()
        )
        for name, value in element.attributes.items():
            assert not name.startswith("on") and name not in ("style", "hx-on", "srcdoc"), element
            if name in ("href", "src", "data-src", "action", "formaction", "hx-get", "hx-post"):
                known = DEEP_LINKS if "data-deep-link" in element.attributes else SCHEMES
                assert urlsplit(value).scheme in known, element


@dataclass(frozen=True)
class ConsoleClient:
    """A signed-in browser at the console of a crib."""

    crib: Crib
    client: httpx2.AsyncClient

    async def page(self, path: str, status: int = 200, **query: str) -> Element:
        """Return a page."""
        answer = await self.client.get(path, params=query or None, headers={"accept": "text/html"})
        assert answer.status_code == status, answer.text
        return read(answer.text)

    async def part(self, path: str, **query: str) -> Element:
        """Return the changing part of a page, as an open page requests it."""
        answer = await self.client.get(path, params=query, headers={"accept": "text/html", "hx-request": "true"})
        assert answer.status_code == 200, answer.text
        return read(answer.text)

    async def json(self, path: str, **query: str) -> Any:
        """Return the page as JSON."""
        answer = await self.client.get(path, params=query, headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def send(
        self,
        path: str,
        fields: Mapping[str, str | list[str]] | None = None,
        status: int = 200,
        *,
        live: bool = False,
        files: Mapping[str, tuple[str, bytes]] | None = None,
    ) -> Element:
        """Send a form and follow redirects; `live` sends it as an open page with scripts does."""
        headers = {"accept": "text/html"} | ({"hx-request": "true"} if live else {})
        answer = await self.client.post(path, data=dict(fields or {}), files=files, headers=headers)
        assert answer.status_code == status, answer.text
        return read(answer.text)

    async def send_json(self, path: str, fields: Mapping[str, str | list[str]] | None = None) -> Any:
        """Send a form and return the resulting page as JSON."""
        answer = await self.client.post(path, data=dict(fields or {}), headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def open_console(home: Path, user: Path | None = None, **settings: Any) -> AsyncGenerator[ConsoleClient]:
    """Run a crib with this HOME, and sign a browser in by the one-time link."""
    environment = Environment({"HOME": str(user or home.parent), "PATH": "/usr/bin:/bin"})
    async with hold(Settings(home=home, **settings), kind="serve", port=0, environment=environment) as holding:
        url = holding.info.url
        # A browser sends the origin of a form, and without scripts it follows redirects.
        async with httpx2.AsyncClient(
            base_url=url, headers={"origin": url}, timeout=30, trust_env=False, verify=PLAIN, follow_redirects=True
        ) as client:
            assert (await client.get(holding.login_url)).status_code == 200
            yield ConsoleClient(holding.crib, client)
