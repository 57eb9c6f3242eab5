"""Measures what a call costs: the crib beside the MCP SDK's own server, in one run. `make bench`."""
