"""The team's notes, one Markdown file per page."""

import re
from pathlib import Path

from toolcrib.cli.demo.upstreams.wire import Arguments, DemoRefusal, DemoTools

_PAGE = re.compile(r"[a-z0-9-]{1,60}")


class Notes:
    """The pages of a directory."""

    def __init__(self, place: Path) -> None:
        self._folder = place / "notes"

    def search(self, given: Arguments) -> str:
        """Return the lines that contain the words, with their pages."""
        words = given["words"].lower()
        found = [
            f"{page.stem}: {line.strip()}"
            for page in sorted(self._folder.glob("*.md"))
            for line in page.read_text(encoding="utf-8").splitlines()
            if words in line.lower()
        ]
        return "\n".join(found) or "Nothing was found."

    def read(self, given: Arguments) -> str:
        """Return a whole page."""
        return self._page(given["page"]).read_text(encoding="utf-8").strip()

    def append(self, given: Arguments) -> str:
        """Append to a page."""
        page = self._page(given["page"])
        with page.open("a", encoding="utf-8") as file:
            file.write(f"\n{given['text']}\n")
        return f"Added to {page.stem}."

    def _page(self, name: str) -> Path:
        page = self._folder / f"{name}.md"
        if not _PAGE.fullmatch(name) or not page.is_file():
            there = ", ".join(sorted(each.stem for each in self._folder.glob("*.md")))
            raise DemoRefusal(f"Page {name!r} does not exist; there are {there}.")
        return page


def notes(place: Path) -> list[DemoTools]:
    """Return the tools of the notes."""
    pages = Notes(place)
    page = {"page": "Its name, such as refunds."}
    return [
        DemoTools("search", "Search all pages.", pages.search, {"words": "What to look for."}, read_only=True),
        DemoTools("read", "Read a page.", pages.read, page, read_only=True),
        DemoTools("append", "Add to the end of a page.", pages.append, {**page, "text": "What to add, in Markdown."}),
    ]
