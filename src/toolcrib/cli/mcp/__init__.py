"""`toolcrib mcp`."""
