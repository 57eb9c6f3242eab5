"""The composition root: turns settings into a running crib. No other package constructs the parts.

`crib` is the whole. It is built in this order: `context`, `gate`, `upstreams`, `agents`, `builtin`.
"""

from toolcrib.host.crib import Crib

__all__ = ["Crib"]
