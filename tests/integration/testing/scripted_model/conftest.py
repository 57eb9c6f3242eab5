"""The shipped fixtures."""

from toolcrib.testing.plugin import claude_environment, no_leaked_children, scripted_model

__all__ = ["claude_environment", "no_leaked_children", "scripted_model"]
