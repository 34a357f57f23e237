"""Whose code is measured: this checkout, or another one beside it, with the schema and the settings that it knows."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_MIGRATE = "import os; from db.migrate import upgrade; upgrade(os.environ['OUTBOX_POSTGRES__DSN'])"
_SETTINGS = """
import json
try:
    from service.settings import known_keys
except ModuleNotFoundError:  # a checkout from before that package
    from db.settings import known_keys
print(json.dumps(known_keys()))
"""
# What a job keeps on disk: open sessions, or Spark's state in the versions that had one.
_FOLDERS = {"job.cache": "cache", "job.checkpoint": "checkpoint"}


@dataclass(frozen=True)
class Checkout:
    """A folder with the project's sources. The interpreter and its libraries are those of this process."""

    name: str
    folder: Path

    def environment(self, dsn: str, bootstrap_servers: str = "") -> dict[str, str]:
        """Return the environment of a process that runs this code on these servers."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
        servers = {"OUTBOX_POSTGRES__DSN": dsn, "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers}
        return kept | servers | {"PYTHONPATH": str(self.folder)}

    def migrate(self, dsn: str) -> None:
        """Make its schema in an empty database."""
        self._python(_MIGRATE, dsn)

    def folder_settings(self, folder: Path) -> Mapping[str, str]:
        """Return the settings that name what the job keeps on disk, as environment variables without OUTBOX_."""
        known = _FOLDERS.keys() & self._known
        return {key.upper().replace(".", "__"): str(folder / _FOLDERS[key]) for key in known}

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(json.loads(self._python(_SETTINGS, "")))

    def _python(self, code: str, dsn: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment(dsn),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{self.folder}: {ran.stderr.strip().splitlines()[-1]}")
        return ran.stdout


OURS = Checkout("ours", Path(__file__).resolve().parents[2])
