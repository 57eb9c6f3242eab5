"""Keeps the chosen project in the links and forms of a page, so that the choice lasts without JavaScript too.

Works on rendered pages, in which every attribute is escaped, so no template can forget it.
"""

import re
from html import escape, unescape
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

_ADDRESS: Final = re.compile(r'\b(href|action|formaction|hx-get|hx-post)="(/(?!/|static/|api/)[^"]*)"')
_FORM: Final = re.compile(r'<form\b[^>]*\bmethod="get"[^>]*>')
_CHOOSER: Final = 'class="project"'


def with_project(address: str, project: str) -> str:
    """Return an address of the console with the project's directory, unless it names one."""
    split = urlsplit(address)
    if "cwd" in parse_qs(split.query, keep_blank_values=True):
        return address
    query = f"{split.query}&cwd={quote(project)}" if split.query else f"cwd={quote(project)}"
    return split._replace(query=query).geturl()


def keep_project(html: str, project: str) -> str:
    """Return a page or fragment whose links and forms lead to pages of the project. GET forms get a hidden field."""

    def link(found: re.Match[str]) -> str:
        return f'{found[1]}="{escape(with_project(unescape(found[2]), project))}"'

    def form(found: re.Match[str]) -> str:
        field = f'<input type="hidden" name="cwd" value="{escape(project)}">'
        return found[0] if _CHOOSER in found[0] else f"{found[0]}{field}"

    return _FORM.sub(form, _ADDRESS.sub(link, html))
