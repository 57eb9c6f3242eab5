"""OAuth 2.1 for remote servers: `signing_in` involves the user once, `Bearer` then refreshes the tokens.

Must never use the credentials of one server for another.
"""
