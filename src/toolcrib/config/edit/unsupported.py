"""The one thing an editor of text may refuse with."""


class Unsupported(Exception):
    """The change cannot be made without touching bytes that are not the entry's own."""
