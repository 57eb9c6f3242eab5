"""Approvals: requests for a person's decision on one call, and how they are shown, answered and remembered."""
