"""The built-in servers: plain functions with injected services, one module per domain.

Above: the host registers them with the services they need. Below: `tools` and `model`. They are tools like all others
and reach nothing that was not injected.
"""
