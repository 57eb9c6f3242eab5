"""REST for rules and explanations."""
