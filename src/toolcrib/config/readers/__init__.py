"""From a client's file to definitions: how each client lays its servers out and what its fields mean.

`clients` is the table; `layouts` finds the entries in a file; `translate` turns a client's own field names into the
common ones; `fields` judges one entry; `read` does it for a whole file. Every entry becomes a definition or a problem.
"""
