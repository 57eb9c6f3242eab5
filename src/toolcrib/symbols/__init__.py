"""What a project's source code names: where each symbol is defined, and where it is used.

`files` says which files count, `languages` and `extract` read one with tree-sitter, in the process of `worker`, which
`parsing` starts; `index` keeps what was read and brings it up to date before every answer.

Above: built-in tools. Below: `model`, `errors`. Only the process of `worker` loads grammars: they are C code, and what
they read is anybody's.
"""

from toolcrib.symbols.entries import KINDS, Kind, Reference, Symbol
from toolcrib.symbols.index import Answer, Standing, Symbols
from toolcrib.symbols.languages import missing_parts

__all__ = ["KINDS", "Answer", "Kind", "Reference", "Standing", "Symbol", "Symbols", "missing_parts"]
