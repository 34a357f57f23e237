"""What grows with the outbox's age has an end: table partitions by day, parked rows and dead letters that retention may delete."""

from db.migrations.script import run_script

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add indexes, a column, a table, and let partitions be as wide as a day."""
    run_script("0009_growth_up")


def downgrade() -> None:
    """Take them away. Partitions that are there keep their width."""
    run_script("0009_growth_down")
