"""The gate: the only way a tool is called or a resource read, from any door, and the only view of what one may see.

`view` holds the decisions for one asker, `consent` gets a person's word where one is needed, `gate` is the road itself,
on which `thinking` stops the clock while a person is asked; `intake` is what upstream definitions pass before anybody
sees them.
Above: every door. Below: the catalog's snapshots, `policy`, the audit.
"""

from toolcrib.gate.consent import Consent
from toolcrib.gate.gate import Called, Gate, InSession
from toolcrib.gate.intake import Intake
from toolcrib.gate.view import Listing

__all__ = ["Called", "Consent", "Gate", "InSession", "Intake", "Listing"]
