"""The screens of tools."""
