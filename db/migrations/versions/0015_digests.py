"""Digests of open sessions say which form they have; going back takes away those that the release before would not compute."""

from db.migrations.script import run_script

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Say so. The job takes the former digests for none, also those that the code before writes after this."""
    run_script("0015_digests_up")


def downgrade() -> None:
    """Strip the new digests from all positions."""
    run_script("0015_digests_down")
