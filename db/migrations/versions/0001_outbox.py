"""The outbox: identity, ledger, outputs, dead letters, lanes, deliveries, roles."""

from db.migrations.script import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every relation, function and role of the outbox."""
    run_script("0001_outbox_up")


def downgrade() -> None:
    """Drop all of them, with all data."""
    run_script("0001_outbox_down")
