"""What stands for Spark and Kafka in the histories: a checkpoint's two logs and its state in memory, and the input's bounds."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from db.errors import ContinuityError
from spark_job import start
from spark_job.directory_fit import DirectoryState
from spark_job.kafka_input import InputTopics
from spark_job.offsets import Offsets


@dataclass
class Files:
    """One checkpoint directory: the offset log, the commit log, and the state after each batch."""

    planned: dict[int, Offsets] = field(default_factory=dict)
    committed: int | None = None
    states: dict[int, dict[int, bytes]] = field(default_factory=dict)


class Disk:
    """The checkpoint's folder."""

    def __init__(self) -> None:
        self.directories: dict[str, Files] = {}
        self.marked: set[str] = set()


class Directory:
    """What stands for `checkpoint.CheckpointDirectory`."""

    def __init__(self, disk: Disk, path: str, _topic_ids: Mapping[str, str]) -> None:
        self.disk, self.path = disk, path

    @property
    def uri(self) -> str:
        return f"file:{self.path}"

    @property
    def files(self) -> Files:
        """Spark makes what is not there."""
        return self.disk.directories.setdefault(self.path, Files())

    def mark(self, _outbox_uuid: UUID) -> None:
        self.disk.marked.add(self.path)

    def is_marked(self, _outbox_uuid: UUID) -> bool:
        return self.path in self.disk.marked

    def state(self) -> DirectoryState:
        files = self.disk.directories.get(self.path, Files())
        return DirectoryState(max(files.planned, default=None), files.committed)

    def end_offsets(self, batch: int) -> Offsets:
        files = self.disk.directories.get(self.path, Files())
        if batch not in files.planned:
            raise ContinuityError(f"checkpoint: {self.path}/offsets/{batch} cannot be read")
        return files.planned[batch]


def unknown_directories(
    disk: Disk, root: str, known: Collection[str], above: int, _outbox_uuid: UUID
) -> dict[int, str]:
    """What stands for `checkpoint.unknown_directories`."""
    found = {}
    for path in disk.marked & {*disk.directories}:
        name = path.removeprefix(f"{root}/")
        number = int(name.split("-")[1])
        if name not in known and number > above:
            found[number] = path
    return found


class Bounds:
    """What stands for `kafka_input.KafkaInput`."""

    def __init__(self, latest: Offsets, owned: Callable[[], bool]) -> None:
        self._latest, self._owned = latest, owned

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        assert self._owned(), (
            "bounds from before the last owner's last commit look like a loss of the input's end"
        )
        return Offsets(dict.fromkeys(self._latest, 0)) if where == "earliest" else self._latest


class State:
    """What stands for Spark's GroupState."""

    def __init__(self, blob: bytes | None) -> None:
        self.blob = blob

    @property
    def exists(self) -> bool:
        return self.blob is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.blob is not None
        return (self.blob,)

    def update(self, value: tuple[bytes]) -> None:
        (self.blob,) = value

    def remove(self) -> None:
        self.blob = None


def stand_ins(patch: pytest.MonkeyPatch) -> None:
    """Put memory in the place of the checkpoint's file system."""
    patch.setattr(start, "CheckpointDirectory", Directory)
    patch.setattr(start, "unknown_directories", unknown_directories)
