"""The writer lock is held for no longer where a key has many positions or dead letters; what leaves the archive is recorded."""

from db.migrations.script import run_script

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Read the positions of the past without the lock; find the letters about an event by an index."""
    run_script("0021_locks_of_many_up")


def downgrade() -> None:
    """Read all positions under the lock."""
    run_script("0021_locks_of_many_down")
