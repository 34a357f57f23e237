"""A reissue leaves erased keys out for ever; no login dates what retention goes by, or archives a partition unseen."""

from db.migrations.script import run_script

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Remember erased keys; let Postgres alone date batches, and the states of letters and replays; log archived partitions."""
    run_script("0027_erased_keys_up")


def downgrade() -> None:
    """Forget the keys of which `outbox.erased` has no row; let the logins of the services date their rows again."""
    run_script("0027_erased_keys_down")
