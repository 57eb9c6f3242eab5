"""The screens of agents."""
