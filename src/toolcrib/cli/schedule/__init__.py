"""`toolcrib schedule`."""
