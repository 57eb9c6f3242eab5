"""Conversations of agents: what a runtime is (`runner`), what it may ask for (`desk`), what a session does (`live`).

`manager` has all of them, `log` their record, `questions` what agents ask a person, `briefing` what each begins with,
`coding` the coding agent's own tools, `transcripts` what coding agents keep by themselves. `claude` and `acp` are the
two kinds of runtime, loaded when first needed.

Above: the doors, built-in tools, schedules. Below: the gate, the zoo, the store.
"""

from toolcrib.sessions.log import Recorder, SessionLog
from toolcrib.sessions.manager import NewSession, OpenSession, Sessions
from toolcrib.store.sessions import SessionFilter

__all__ = ["NewSession", "OpenSession", "Recorder", "SessionFilter", "SessionLog", "Sessions"]
