"""The MCP endpoint: spec 2025-11-25 and older ("legacy") and 2026-07-28 ("modern") on one address.

`endpoint` handles the frequent methods and delegates the rest to the official SDK, which only `sdk` imports. Invariant:
every tool call goes through the gate.
"""
