"""The zoo: agents with a prompt, skills, a memory and permissions.

`zoo` keeps them and `brain` their memory; `input` says what may be given, `check` judges it, `compile` makes the
prompt, `difference` compares two states; `transfer` reads and writes the forms of other tools; `starters` and `library`
are what a new zoo has.

Above: `host` constructs it, REST and the built-in server `agent_zoo` use it. Below: `store`, `model`. It must never
decide what a tool call may do: it only says what an agent was given.
"""

from toolcrib.zoo.brain import Brain, EntryQuery
from toolcrib.zoo.check import FieldProblem, InvalidFields, parse
from toolcrib.zoo.compile import Compiled, compile_prompt, grants
from toolcrib.zoo.zoo import KeptAgent, Revision, Zoo

__all__ = [
    "Brain",
    "Compiled",
    "EntryQuery",
    "FieldProblem",
    "InvalidFields",
    "KeptAgent",
    "Revision",
    "Zoo",
    "compile_prompt",
    "grants",
    "parse",
]
