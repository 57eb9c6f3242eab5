"""The built-in servers: plain functions with injected services, one module per domain.

They are tools like all others and can only access what is injected.
"""
