"""Fixtures for tests of real parts: both databases."""

from integration.store.databases import database, postgres, postgres_url, sqlite_url

__all__ = ["database", "postgres", "postgres_url", "sqlite_url"]
