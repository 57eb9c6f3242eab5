"""An index of a project's source code: where each symbol is defined and where it is used.

`files` selects the source files. `languages` and `extract` parse them with tree-sitter in the process of `worker`,
which `parsing` starts. `index` keeps the results and updates them before every answer.

Only the worker process loads grammars: they are C code that parses untrusted input.
"""
