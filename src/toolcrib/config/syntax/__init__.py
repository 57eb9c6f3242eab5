"""Text of JSON, JSONC, TOML and YAML files as values with line numbers.

Each module parses one family and knows where its parts stand in the text; `config.edit` uses the same positions, so a
reader and an editor never disagree about what an entry is. Nothing here knows what a server is.
"""
