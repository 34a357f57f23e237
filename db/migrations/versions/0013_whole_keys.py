"""Who erases is answered for whole keys and nothing else, and the owner's functions trust no old snapshot."""

from db.migrations.script import run_script

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Replace functions, and take rights away."""
    run_script("0013_whole_keys_up")


def downgrade() -> None:
    """Put the former functions and rights back."""
    run_script("0013_whole_keys_down")
