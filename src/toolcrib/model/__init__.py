"""The nouns of Toolcrib: frozen values that cross package borders.

Everything above passes these values around; nothing here does I/O, keeps state or imports another package of ours.
Import from the module of the noun (`toolcrib.model.tools`), not from here, so that importing one noun stays cheap.
"""
