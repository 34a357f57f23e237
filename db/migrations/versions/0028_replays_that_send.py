"""A replay whose process may still send keeps its partitions, whatever its state; a parked row of a dropped partition can be erased."""

from db.migrations.script import run_script

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Go by the lease, not only by the state."""
    run_script("0028_replays_that_send_up")


def downgrade() -> None:
    """Go by the state alone."""
    run_script("0028_replays_that_send_down")
