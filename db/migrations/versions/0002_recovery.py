"""Recovery: runs, savepoints, requests to the running job, and what generations and dead letters must know for it."""

from db.migrations.script import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the relations and columns."""
    run_script("0002_recovery_up")


def downgrade() -> None:
    """Drop them, with their data."""
    run_script("0002_recovery_down")
