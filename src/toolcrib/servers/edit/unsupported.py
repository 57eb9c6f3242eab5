"""The exception with which text editors refuse a change."""


class Unsupported(Exception):
    """The change would touch bytes outside the entry."""
