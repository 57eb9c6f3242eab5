"""The screens for access: check, rules, grants and tokens."""
