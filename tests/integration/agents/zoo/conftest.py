"""Fixtures: a listening crib, as in the tests of the server."""

from integration.web.conftest import running

__all__ = ["running"]
