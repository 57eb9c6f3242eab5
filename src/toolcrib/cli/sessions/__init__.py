"""`toolcrib sessions`."""
