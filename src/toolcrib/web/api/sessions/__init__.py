"""REST for sessions."""
