"""The runner for Claude Code, through the Claude Agent SDK: the only package that imports it.

`runner` opens conversations; `options` is what they begin with, `servers` the crib's tools in them, `hooks` the word on
Claude Code's own, `calls` both while they run, `mapping` what is said as events, `endings` how turns end, `program` and
`launch` the process. The SDK takes a second and 70 MB to load, so nothing may import this before it is needed.

Above: `runners` loads it by name. Below: the port in `sessions.runner`, the SDK.
"""

from toolcrib.sessions.claude.runner import ClaudeRunner

__all__ = ["ClaudeRunner"]
