"""Connections to MCP servers: started or dialled, initialized, kept alive and stopped.

`stdio` and `http` are the transports and `connection` is their common interface. `handshake` negotiates the protocol
era, and `opener` opens a connection for a server. `offer` lists what a server offers, `exchange` sends requests, and
`upstream` keeps one server connected. `source` makes it a source of the catalog, and `pool` holds all of them. `oauth`,
`credentials` and `sign_ins` handle authorization.

Must never decide whether a server may be started.
"""
