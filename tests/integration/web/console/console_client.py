"""A person's browser without a script: asks a real crib for pages with a cookie, and reads what is in them."""

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
    """An element with what is in it."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: "list[Element | str]" = field(default_factory=list["Element | str"])

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        return " ".join("".join(self._texts()).split())

    @property
    def raw_text(self) -> str:
        """All text in it, as it stands."""
        return "".join(self._texts())

    def __iter__(self) -> "Iterator[Element]":
        """Every element in it, in the order of the page."""
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child

    def all(self, tag: str | None = None, **attributes: str) -> "list[Element]":
        """The elements with this tag and these attributes; `class_` means one of its classes."""
        return [each for each in self if tag in (None, each.tag) and each._fits(attributes)]

    def one(self, tag: str | None = None, **attributes: str) -> "Element":
        """The only one."""
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
    """Builds the tree, and takes no end tag that does not fit: the pages are ours and have to be well made."""

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
    """A page or a part of one as a tree; it has to be well made, and to be without anything that could run."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root]
    check_inert(reader.root)
    return reader.root


SCHEMES = ("", "http", "https", "data", "mailto")
DEEP_LINKS = ("cursor", "vscode")


def check_inert(root: Element) -> None:
    """Nothing on the page runs or is styled but the files that belong to it, and no id is there twice."""
    ids = [each.attributes["id"] for each in root if "id" in each.attributes]
    assert len(ids) == len(set(ids)), sorted(id for id in ids if ids.count(id) > 1)
    for element in root:
        if element.tag == "iframe":  # only the sandboxed pages of apps
            assert element.attributes["sandbox"] == "allow-scripts allow-forms", element
            assert element.attributes["data-src"].startswith("/app-pages/"), element
        assert element.tag not in ("object", "embed", "base", "style", "math"), element
        if element.tag == "svg":  # only the shapes of our own plots
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
    """Somebody at the console of a crib."""

    crib: Crib
    client: httpx2.AsyncClient

    async def page(self, path: str, status: int = 200, **query: str) -> Element:
        """A page as a browser gets it."""
        answer = await self.client.get(path, params=query or None, headers={"accept": "text/html"})
        assert answer.status_code == status, answer.text
        return read(answer.text)

    async def part(self, path: str, **query: str) -> Element:
        """What changes of a page, as a page that is open asks for it."""
        answer = await self.client.get(path, params=query, headers={"accept": "text/html", "hx-request": "true"})
        assert answer.status_code == 200, answer.text
        return read(answer.text)

    async def json(self, path: str, **query: str) -> Any:
        """The page's twin for programs."""
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
        """Send a form; `live` is how an open page with a script does it. A redirection is followed."""
        headers = {"accept": "text/html"} | ({"hx-request": "true"} if live else {})
        answer = await self.client.post(path, data=dict(fields or {}), files=files, headers=headers)
        assert answer.status_code == status, answer.text
        return read(answer.text)

    async def send_json(self, path: str, fields: Mapping[str, str | list[str]] | None = None) -> Any:
        """Send a form, and read the twin of the page that it gives."""
        answer = await self.client.post(path, data=dict(fields or {}), headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def open_console(home: Path, user: Path | None = None, **settings: Any) -> AsyncGenerator[ConsoleClient]:
    """A crib whose owner has this HOME, and a browser that came in by the one-time link."""
    environment = Environment({"HOME": str(user or home.parent), "PATH": "/usr/bin:/bin"})
    async with hold(Settings(home=home, **settings), kind="serve", port=0, environment=environment) as holding:
        url = holding.info.url
        # A browser says which page sent a form; one without a script follows what the answer says.
        async with httpx2.AsyncClient(
            base_url=url, headers={"origin": url}, timeout=30, trust_env=False, verify=PLAIN, follow_redirects=True
        ) as client:
            assert (await client.get(holding.login_url)).status_code == 200
            yield ConsoleClient(holding.crib, client)
