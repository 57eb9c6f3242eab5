"""Secrets in definitions: finding plaintext ones, and moving them into the keyring."""
