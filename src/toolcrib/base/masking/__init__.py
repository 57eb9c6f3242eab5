"""Masks secrets in everything displayed or recorded: by form, name, place, randomness, or because they are known.

`kinds` is the table of forms, `names` classifies names, `randomness` detects random words; `words`, `text`, `urls` and
`values` apply all three, and `values` finds values that came from a secret's place.

Must never change what a server is started with, what a tool is called with or what a model receives.

Import the modules directly: most of them compile patterns, which not every command needs.
"""

from typing import Final

MASK: Final = "***"
