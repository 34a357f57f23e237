"""The job's login makes the first lanes and changes no others."""

from db.migrations.script import run_script

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Let a function insert the first lane epoch, instead of the job's login."""
    run_script("0024_first_lane_epoch_up")


def downgrade() -> None:
    """Let the job's login insert lane epochs."""
    run_script("0024_first_lane_epoch_down")
