"""`audit_undelivered` calls a lane stopped only if the lane does not retry by itself."""

from db.migrations.script import run_script

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Go by stopped_why instead of stopped_reason."""
    run_script("0023_stopped_lanes_up")


def downgrade() -> None:
    """Go by stopped_reason again."""
    run_script("0023_stopped_lanes_down")
