"""Partitions that were archived before retention dropped them."""

from db.migrations.script import run_script

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the record of the archive, and the functions that hold, drop and rewrite."""
    run_script("0019_archive_up")


def downgrade() -> None:
    """Forget what was archived; the files stay."""
    run_script("0019_archive_down")
