"""Erasure: what is kept of a session key can be taken out, and the audit still adds up."""

from db.migrations.script import run_script

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add a table, a role, functions, and let the checks count what was erased."""
    run_script("0012_erasure_up")


def downgrade() -> None:
    """Take them away. The release before takes erased rows for missing ones."""
    run_script("0012_erasure_down")
