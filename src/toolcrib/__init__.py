"""Toolcrib: tools for agents, issued by one gate."""
