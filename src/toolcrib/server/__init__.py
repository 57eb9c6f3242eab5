"""The doors of the crib over HTTP and stdio: guard, REST, event streams, the MCP endpoint, the console's page.

Above: `cli` holds a crib open through `server.run`. Below: `host` gives the crib, `console` the page. Every request
passes the guard first; no tool is reached but through the gate.
"""
