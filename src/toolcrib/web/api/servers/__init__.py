"""REST for servers."""
