"""Who changed what, and who may: the operator log."""

from db.migrations.script import run_script

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the log."""
    run_script("0011_rights_up")


def downgrade() -> None:
    """Take it away, with what it says."""
    run_script("0011_rights_down")
