"""What is wrong on this machine, each with its evidence and its fix.

A check is a function of a `Ground` that yields findings; `CHECKS` is the table of those that need no crib, `ASKED` of
those that ask one. None of them changes anything: what may be repaired without asking carries its repair along, and
somebody else says when.

Above: the command line. Below: `home`, `config`, `store`, and the crib over its client. It must never raise for what is
wrong, and never touch what it only looks at.
"""

from toolcrib.doctor.asked import ASKED, ask
from toolcrib.doctor.examine import CHECKS, examine, repaired
from toolcrib.doctor.finding import Finding, Severity, worst
from toolcrib.doctor.ground import Ground

__all__ = ["ASKED", "CHECKS", "Finding", "Ground", "Severity", "ask", "examine", "repaired", "worst"]
