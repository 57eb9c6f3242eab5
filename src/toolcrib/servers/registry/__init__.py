"""The MCP registry: search it, and turn what it publishes into definitions for our own file."""
