"""A broker whose data lies on a disk of a few megabytes that can be filled and emptied, and that outlives the broker."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from devstack.kafka import Kafka
from devstack.processes.process import ServerProcess, launch
from tests.support.servers.proxied_kafka import HEAP

_SMALL_DISK = Path(__file__).with_name("small_disk.py")
_BLOCK = 4096
# Index files are mapped into memory at their full size, 10 MB by default.
_SETTINGS = {"log.index.size.max.bytes": "65536", "log.segment.bytes": str(1 << 20)}
_LAST_WORDS = ("No space left on device", "KafkaStorageException", "SIGBUS", "have failed")


class KafkaOnSmallDisk(Kafka):
    """The disk belongs to a process that sleeps: whoever enters its mount namespace sees the disk, the broker too."""

    def __init__(self, data_dir: Path, megabytes: int) -> None:
        super().__init__(data_dir, heap=HEAP, settings=_SETTINGS)
        self._disk = self.data_dir / "disk"
        self._disk.mkdir(parents=True)
        owner = f"{os.getuid()}:{os.getgid()}"
        sleeping = ["/bin/sh", "-c", "echo ready; exec sleep infinity"]
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SMALL_DISK), str(megabytes), str(self._disk), owner, *sleeping],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "ready\n", "the small disk could not be mounted"

    def fill(self) -> None:
        """Take all of the disk, to the last block."""
        with self._filler().open("wb", buffering=0) as filler:
            while True:
                try:
                    filler.write(b"\0" * _BLOCK)
                except OSError:
                    return

    def make_room(self) -> None:
        """Give back what `fill` has taken."""
        self._filler().unlink()

    def last_words(self) -> str:
        """What the log says of the broker's end."""
        log = self.log.read_text("utf-8", "replace")
        said = [words for words in _LAST_WORDS if words in log]
        assert said, log[-3_000:]
        return ", ".join(said)

    @property
    def _storage(self) -> Path:
        return self._disk / "storage"

    def _filler(self) -> Path:
        # As the keeper sees it: here, the disk is an empty folder.
        return Path(f"/proc/{self._keeper.pid}/root{self._disk}/filler")

    def _format(self, java: list[str], properties: Path) -> None:
        is_formatted = Path(f"/proc/{self._keeper.pid}/root{self._storage}/meta.properties").exists()
        if not is_formatted:
            super()._format([*self._inside(), *java], properties)

    def _launch_server(self, command: list[str]) -> ServerProcess:
        return launch(self.name, [*self._inside(), *command], log=self.log)

    def _inside(self) -> list[str]:
        # The namespace's owner as an ordinary user is its user namespace, which has to be entered too.
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._keeper.pid), *user, "--mount"]

    def _delete_data(self) -> None:
        self._keeper.kill()
        self._keeper.wait()
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()
        shutil.rmtree(self._disk, ignore_errors=True)
        super()._delete_data()
