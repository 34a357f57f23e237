"""A wake-up that the server cannot take ends no transaction; what is pruned of a lane is the owner's word; no run's end has a key."""

from db.migrations.script import run_script

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the function, use it, take rights and keys away."""
    run_script("0014_wakeups_up")


def downgrade() -> None:
    """Put the former functions and rights back."""
    run_script("0014_wakeups_down")
