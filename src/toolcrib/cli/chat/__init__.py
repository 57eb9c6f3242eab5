"""`toolcrib chat`."""
