"""Fixtures of the permission tests."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.gate.permissions.shop_lab import ShopLab, open_shop_lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[ShopLab]:
    """Open a crib with a shop and without upstream servers."""
    async with open_shop_lab(tmp_path) as lab:
        yield lab
