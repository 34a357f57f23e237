"""No partition is made far ahead or again, no living process is pruned, and whoever replaces what the outbox is bound to is in the log."""

from db.migrations.script import run_script

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Bound the two functions, add the trigger."""
    run_script("0016_bounds_up")


def downgrade() -> None:
    """Put the former functions back, drop the trigger."""
    run_script("0016_bounds_down")
