"""The shipped fixtures."""

from toolcrib.testing.plugin import claude_environment, crib, scripted_model

__all__ = ["claude_environment", "crib", "scripted_model"]
