"""Changes files that people wrote: one entry at a time, every other byte as it was.

`json_text`, `toml_text` and `yaml_text` change a text; `entries` checks that the outcome says exactly what was meant;
`write` puts it on disk whole or not at all, with a lock, a comparison and an undo.
"""
