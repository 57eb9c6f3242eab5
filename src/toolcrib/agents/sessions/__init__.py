"""Sessions: the conversations of agents.

`manager` manages all sessions and `live_session` one that is running. `runtime` defines the interface of runtimes,
`session_tools` what they may request from the crib, `event_log` the stored events, `questions` an agent's questions to
a person, `briefing` the initial context, `coding_source` the coding agent's own tools, `transcripts` Claude Code's own
records. `claude` and `acp` are the two kinds of runtime, loaded on first use.
"""
