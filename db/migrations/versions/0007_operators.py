"""What operators ask: when a publisher was seen, how often lanes were taken, which topics are parked, which keys made nothing."""

from db.migrations.script import run_script

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add two columns, a table and a view, and allow rows to be parked for a missing topic."""
    run_script("0007_operators_up")


def downgrade() -> None:
    """Take them away. Rows that are parked for a missing topic stay parked, as invalid."""
    run_script("0007_operators_down")
