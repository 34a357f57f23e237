"""An erasure waits for a replay's lease, also where its process is dead."""

from db.migrations.script import run_script

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Look at the lease alone, not at the backend that holds it."""
    run_script("0020_replay_leases_up")


def downgrade() -> None:
    """Look at the backend, too."""
    run_script("0020_replay_leases_down")
