"""The store: everything a crib remembers, in one SQLite file or one PostgreSQL database.

`engine` opens it and is all that the rest of Toolcrib sees; `batch` is the queue in front of the one writer, `sqlite`
and `postgres` are the two writers; `schema` and `upgrade` say what the tables look like and bring a database there;
every further module is one aggregate: its table and its queries.

Above: the catalog's names and the audit live in it. Below: SQLAlchemy Core, sqlite3, psycopg. It must never put a value
into SQL as text: every value is a parameter.
"""

from toolcrib.store.batch import ConstraintError, Log, Many
from toolcrib.store.engine import Store, open_store
from toolcrib.store.names import NameRow, load_names, save_names
from toolcrib.store.offers import load_offers, save_offers

__all__ = [
    "ConstraintError",
    "Log",
    "Many",
    "NameRow",
    "Store",
    "load_names",
    "load_offers",
    "open_store",
    "save_names",
    "save_offers",
]
