"""The writer lock is a row lock, which needs a grant; it was an advisory lock, which any login can take."""

from db.migrations.script import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the row and the function that locks it, and let the functions that write a batch or an epoch use it."""
    run_script("0008_writer_lock_up")


def downgrade() -> None:
    """Take them away: the advisory lock alone, as before."""
    run_script("0008_writer_lock_down")
