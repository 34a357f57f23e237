"""No login dates what retention goes by, or archives a partition unseen."""

from db.migrations.script import run_script

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Let Postgres alone date batches, and the states of letters and replays; log archived partitions."""
    run_script("0027_erased_keys_up")


def downgrade() -> None:
    """Let the logins of the services date them again."""
    run_script("0027_erased_keys_down")
