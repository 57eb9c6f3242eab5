"""The runtime for coding agents that speak the Agent Client Protocol: the only package that imports it.

`runtime` starts an agent and opens conversations, `conversation` is one of them. `opening` starts it, `wire` transports
the protocol over the process's pipes, `calls` handles the agent's calls, `mapping` converts updates to events,
`recognition` identifies tools, `endings` the ends of turns.
"""
