"""Edits files that people wrote: one entry at a time, leaving every other byte unchanged.

`json_text`, `toml_text` and `yaml_text` change a text; `entries` verifies that the result contains exactly the intended
change. `base.files.write` writes it atomically, with a lock, a version check and an undo.
"""
