"""The MCP servers of the demonstration, started over stdio as `python -m toolcrib.demo.upstreams NAME PLACE`.

`wire` speaks the protocol, with nothing but the standard library; `tracker` and `notes` are what is offered.

Above: a crib starts them like any other server. They must never import the rest of Toolcrib.
"""
