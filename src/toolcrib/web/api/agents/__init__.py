"""REST for agents."""
