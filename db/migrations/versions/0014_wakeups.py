"""A wake-up that the server cannot take ends no transaction, and the publisher writes only those columns of a new lane that are its own."""

from db.migrations.script import run_script

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the function, use it, and take rights away."""
    run_script("0014_wakeups_up")


def downgrade() -> None:
    """Put the former functions and rights back."""
    run_script("0014_wakeups_down")
