"""No state in Spark: positions with what is open on the ledger, on generations and on savepoints; what stood for checkpoints goes."""

from db.migrations.script import run_script

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Move the position and the savepoints, drop the columns, replace the views. Refused while an owner lives."""
    run_script("0005_stateless_up")
    run_script("0005_stateless_comments")


def downgrade() -> None:
    """Put everything back; positions without a checkpoint. Refused while an owner lives."""
    # Its views stand on tables that are made again.
    run_script("0004_audit_down")
    run_script("0005_stateless_down")
    run_script("0004_audit_up")
    run_script("0004_audit_comments")
    run_script("0005_stateless_down_grants")
