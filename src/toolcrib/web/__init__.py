"""Serves the crib over HTTP and stdio: the request guard, REST API, event streams, MCP endpoint and console.

Invariant: every request passes the guard first, and every tool call goes through the gate.
"""
