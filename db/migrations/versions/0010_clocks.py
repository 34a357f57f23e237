"""The audit goes by the order of a lane's transactions instead of the clock, and a publisher that withdrew is not shown as gone."""

from db.migrations.script import run_script

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add a column and change the views that compared times."""
    run_script("0010_clocks_up")


def downgrade() -> None:
    """Compare times again."""
    run_script("0010_clocks_down")
