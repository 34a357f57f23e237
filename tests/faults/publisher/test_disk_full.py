"""A broker whose disk is full takes nothing; the publisher waits, and continues when there is room."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka
from devstack.processes.process import ServerProcess, launch
from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PATIENCE_S, PublisherScenario, SetUp
from tests.support.paths import ROOT
from tests.support.servers.proxied_kafka import HEAP
from tests.support.waiting import wait_until

_SMALL_DISK = ROOT / "tests" / "support" / "servers" / "small_disk.py"
_BLOCK = 4096
# Index files are mapped into memory at their full size, 10 MB by default.
_SETTINGS = {"log.index.size.max.bytes": "65536", "log.segment.bytes": str(1 << 20)}
_LAST_WORDS = ("No space left on device", "KafkaStorageException", "SIGBUS", "have failed")


class KafkaOnSmallDisk(Kafka):
    """The disk belongs to a process that sleeps: whoever enters its mount namespace sees the disk, the broker too."""

    def __init__(self, data_dir: Path, megabytes: int) -> None:
        super().__init__(data_dir, fast=True, heap=HEAP, settings=_SETTINGS)
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


_MEGABYTES = 64


@pytest.fixture
def crowded_kafka(tmp_path: Path) -> Iterator[KafkaOnSmallDisk]:
    """Of the test's own."""
    server = KafkaOnSmallDisk(tmp_path / "kafka", _MEGABYTES)
    try:
        server.start()
        yield server
    finally:
        server.destroy()


def full(kafka: KafkaOnSmallDisk, point: str, detail: str) -> PublisherCell:
    """The last block goes while a lane stands at the point; the broker gives up its only disk, and ends."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.meet(Fault(point, Action.HOLD, 3), batches=3)
        kafka.fill()
        scenario.release()
        scenario.feed(40)
        wait_until(lambda: not kafka.is_running(), "the end of a broker without a disk", PATIENCE_S)
        return "the broker ended: " + kafka.last_words()

    def recover(scenario: PublisherScenario) -> str:
        assert scenario.publisher.is_alive()
        kafka.make_room()
        kafka.start()
        return scenario.recover()

    return PublisherCell("the broker's disk is full", point, "no space left", strike, recover, 3, detail)


@pytest.mark.guarantee(34)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_full_disk_of_the_broker_costs_no_event(
    set_up: SetUp, crowded_kafka: KafkaOnSmallDisk, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    cells = [
        full(crowded_kafka, "transaction.after_begin", "nothing of the transaction is sent"),
        full(
            crowded_kafka,
            "transaction.before_commit",
            "all records are in Kafka, its commit markers find no room",
        ),
    ]
    run_cells(matrix, "a full disk", cells, set_up(bootstrap=crowded_kafka.bootstrap_servers), tell)
