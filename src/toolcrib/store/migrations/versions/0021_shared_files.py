"""Counts changes of the files that nodes share as changes of permissions, on PostgreSQL."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Create the trigger."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER policy_of_sealed_values AFTER INSERT OR UPDATE OR DELETE ON sealed_values "
            "FOR EACH STATEMENT EXECUTE FUNCTION bump_policy_epoch()"
        )
