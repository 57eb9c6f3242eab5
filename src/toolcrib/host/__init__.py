"""The composition root: turns settings into a running crib. No other package constructs the parts.

`crib` is the whole; `upstreams` and `agents` are its two halves.
"""

from toolcrib.host.crib import Crib

__all__ = ["Crib"]
