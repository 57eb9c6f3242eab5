"""`toolcrib agents`."""
