"""The publisher keeps its log of deliveries short: each lane says up to where, and the check of its chain begins there."""

from db.migrations.script import run_script

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add `lane.pruned_seq` and let the publisher delete deliveries."""
    run_script("0006_delivery_log_up")


def downgrade() -> None:
    """Put the check back as it was; no data is lost."""
    run_script("0006_delivery_log_down")
