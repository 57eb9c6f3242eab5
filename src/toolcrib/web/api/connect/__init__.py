"""REST for connecting apps."""
