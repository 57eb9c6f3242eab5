"""The runner for coding agents that speak the Agent Client Protocol: the only package that imports it.

`runner` starts an agent and opens conversations, `conversation` is one of them; `opening` is how it is begun, `wire`
the protocol on the process's pipes, `calls` what the agent calls while it runs, `mapping` what it says as events,
`recognition` which tool it means, `endings` how turns end.

Above: `runners` loads it by name. Below: the port in `sessions.runner`, `connect` for the process, the protocol's
package.
"""

from toolcrib.sessions.acp.runner import AcpRunner

__all__ = ["AcpRunner"]
