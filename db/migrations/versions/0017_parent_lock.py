"""Who makes a partition locks the partitioned table alone, not each of its partitions."""

from db.migrations.script import run_script

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Lock the parent only."""
    run_script("0017_parent_lock_up")


def downgrade() -> None:
    """Lock all, as before."""
    run_script("0017_parent_lock_down")
