"""Audit: views that answer what happened, what was sent and whether anything is missing; helpers that the services share with them."""

from db.migrations.script import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the views, their functions and one index."""
    run_script("0004_audit_up")
    run_script("0004_audit_comments")


def downgrade() -> None:
    """Drop them; no data is lost."""
    run_script("0004_audit_down")
