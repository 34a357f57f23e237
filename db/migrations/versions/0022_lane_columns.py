"""Retention's login reads a lane's position without the session key in it."""

from db.migrations.script import run_script

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Grant the columns that retention reads, instead of the whole view."""
    run_script("0022_lane_columns_up")


def downgrade() -> None:
    """Grant the whole view."""
    run_script("0022_lane_columns_down")
