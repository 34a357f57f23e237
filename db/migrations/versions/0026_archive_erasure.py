"""An erasure finds the cursors of replays from the archive, and remembers the generation of archived rows."""

from db.migrations.script import run_script

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Report each unfinished replay that stands at the key; show replays' leases on the archive; store the generation of archived rows."""
    run_script("0026_archive_erasure_up")


def downgrade() -> None:
    """Pass over replays from the archive; store generation 0 for a row whose ledger row is pruned."""
    run_script("0026_archive_erasure_down")
