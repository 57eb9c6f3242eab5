"""Parses an app's file into definitions: where each app keeps its servers and what its fields mean.

`apps` is the table; `layouts` finds the entries in a file; `translate` converts an app's own field names to the common
ones; `fields` judges one entry; `read` processes a whole file. Every entry becomes a definition or a problem.
"""
