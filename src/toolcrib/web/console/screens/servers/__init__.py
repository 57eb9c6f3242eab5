"""The screens of servers."""
