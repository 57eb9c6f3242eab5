"""A running crib for tests of its MCP endpoint."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.web.mcp.library import Library
from lab import Lab, make_lab
from toolcrib.upstream.pool import Pool
from toolcrib.web.run import hold


@pytest.fixture
def library() -> Library:
    """A source with prompts, resources, templates and tools."""
    return Library()


@pytest.fixture
async def lab(tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Lab]:
    """A crib in this process on a free port, with the library source and Python tools."""

    def listen(_: Pool, listener: object) -> object:
        return library.listen(listener)  # pyright: ignore[reportArgumentType] as the pool takes it

    monkeypatch.setattr(Pool, "listen", listen)
    stopped = make_lab(tmp_path)
    async with hold(stopped.settings, kind="serve") as holding:
        holding.crib.catalog.add(library)
        library.refresh_catalog = holding.crib.catalog.refresh
        yield replace(stopped, url=holding.info.url)
