"""The runtime for Claude Code through the Claude Agent SDK: the only package that imports it.

`runtime` opens conversations. `options` builds the SDK's options, `servers` serves the crib's tools, `hooks` decides on
Claude Code's own tools, `calls` tracks running calls, `mapping` converts messages to events, `endings` the ends of
turns, `program` and `launch` start the process. Importing the SDK takes a second and 70 MB, so import this package only
on use.
"""
