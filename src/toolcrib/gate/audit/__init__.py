"""The audit log: calls and changes, their principals, decisions and outcomes, in one hash chain.

`records` records calls and finds them again, `changes` does so for changes of permissions, `chain` numbers and links
records, and `head` stores the end of the chain outside the database. `verify` detects tampering, `export` writes
records out, and `segments` archives old ones in files.

Must never report a record as written before it is durable.
"""
