"""One view follows each output from its input records to its place in Kafka."""

from db.migrations.script import run_script

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Make it, for those who may read the audit views."""
    run_script("0018_lineage_up")


def downgrade() -> None:
    """Take it away."""
    run_script("0018_lineage_down")
