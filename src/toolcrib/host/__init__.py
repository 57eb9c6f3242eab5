"""The composition root: settings in, a running crib out. Nothing else constructs the parts.

`crib` is the whole, `agents` the side of it that runs agents: runtimes, sessions, schedules.
"""

from toolcrib.host.crib import Crib

__all__ = ["Crib"]
