"""Alembic's entry point: runs the revisions in order, in the transaction of the given connection."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
