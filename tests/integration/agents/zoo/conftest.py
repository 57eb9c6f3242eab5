"""Fixtures: a crib on the network, as the tests of the server have it."""

from integration.web.conftest import running

__all__ = ["running"]
