"""An erasure reaches the planner's statistics, and the cursors of replays that ended later."""

from db.migrations.script import run_script

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Let ANALYZE pass over keys and contents that no plan needs; let an erasure renew the other statistics and find late cursors."""
    run_script("0025_statistics_up")


def downgrade() -> None:
    """Let ANALYZE sample all columns."""
    run_script("0025_statistics_down")
