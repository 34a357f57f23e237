"""Where the checkout is."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
JARS_LOCK = ROOT / "devstack" / "jars.lock"
