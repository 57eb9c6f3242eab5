"""Code mode: programs that call the crib's tools, in a sandbox, each call through the gate."""
