"""The built-in server `agent_zoo`: tools, prompts and resources for agents."""
