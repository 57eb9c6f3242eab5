"""The MCP endpoint: spec 2025-11-25 and older ("legacy") and 2026-07-28 ("modern") on one address.

`endpoint` answers the two frequent methods itself and hands everything rarer to the official SDK, which only `sdk`
imports. Above: `server.app` mounts it behind the guard. Below: the gate; no tool is reached in any other way.
"""
