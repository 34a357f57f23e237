"""The publisher: processes that share the lanes, lane changes, resumes, replays, requeues."""

from db.migrations.script import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the relations and columns."""
    run_script("0003_publisher_up")


def downgrade() -> None:
    """Drop them, with their data."""
    run_script("0003_publisher_down")
