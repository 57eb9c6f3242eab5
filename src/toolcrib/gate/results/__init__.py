"""Results that fit a client's context: large ones are kept here, and the client gets a preview and a handle."""
