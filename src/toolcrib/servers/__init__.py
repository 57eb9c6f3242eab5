"""MCP server definitions: discovered in the files of every app, merged, trusted, edited and exported.

`places` lists the possible files and `readers` parses them; `discover` and `merge` build one list. `trust` and
`resolve` run before a server starts. `edit` and `own_file` change files, `export` and `paste` convert between all
formats, and `last_good` keeps the last valid state of a broken file. `Servers` in `servers` is the entry point, and
`apps` writes this crib into the files of apps.

Must never start, resolve or contact anything for an untrusted definition.
"""
