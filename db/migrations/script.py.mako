<%! import re %>\
<% slug = "_".join(re.findall(r"\w+", message)).lower() %>\
"""${message}."""

from db.migrations.script import run_script

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Say what this makes."""
    run_script("${up_revision}_${slug}_up")


def downgrade() -> None:
    """Say what this drops."""
    run_script("${up_revision}_${slug}_down")
