"""The store: everything a crib persists, in one SQLite file or one PostgreSQL database.

`engine` opens it and is the public interface. `batch` is the queue in front of the single writer; `sqlite` and
`postgres` are the two writers. `schema` defines the tables and `upgrade` migrates to them. Every other module is one
aggregate: its table and its queries.

Must never put a value into SQL as text: every value is a parameter.
"""
