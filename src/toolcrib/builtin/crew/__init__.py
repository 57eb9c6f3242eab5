"""The built-in server `crew`: tools for agents to cooperate and work on their own, within limits."""
