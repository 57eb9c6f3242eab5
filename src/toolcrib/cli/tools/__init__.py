"""`toolcrib tools`."""
