"""Parses JSON, JSONC, TOML and YAML into values with line numbers.

Each module parses one family and knows the positions of its parts. `servers.edit` uses the same positions, so readers
and editors agree on what an entry is. Independent of servers.
"""
