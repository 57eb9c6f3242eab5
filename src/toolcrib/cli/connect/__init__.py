"""`toolcrib connect`."""
