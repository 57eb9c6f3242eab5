"""Imports pytest, which Toolcrib does not depend on; raises with install instructions if it is missing."""

try:
    import pytest
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ModuleNotFoundError(
        "The fixtures and conformance suites of `toolcrib.testing` need pytest. Install it beside Toolcrib, "
        "for example with `uv pip install pytest` or `pip install pytest`.",
        name="pytest",
    ) from None

__all__ = ["pytest"]
