"""REST for tools."""
