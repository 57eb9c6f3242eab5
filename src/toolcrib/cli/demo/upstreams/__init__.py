"""The MCP servers of the demo, started over stdio as `python -m toolcrib.cli.demo.upstreams NAME PLACE`.

`wire` implements the protocol with only the standard library; `tracker` and `notes` are the tools.

Must never import the rest of Toolcrib.
"""
