"""What Alembic runs to migrate: the revisions in order, in the transaction of the connection it was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
