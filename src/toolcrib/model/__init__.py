"""Domain types of Toolcrib: frozen values that are passed between packages.

Must never do I/O, keep state or import another package of ours. Import from the module (`toolcrib.model.tools`), not
from this package, so that each import stays cheap.
"""
