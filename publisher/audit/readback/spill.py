"""Records of one size, spread over files by a hash, so that records that belong together can be compared in limited memory.

Appending survives kill -9: the next process truncates each file to the size that the last saved `flush` returned, so that no record is
stored twice.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

from service.errors import OutboxError
from service.private_file import private

_BUFFERED_BYTES = 32 * 1024 * 1024
_READ_RECORDS = 10_000


class Spill:
    """`buckets` files in `folder`, each with records of the form `record`. Not thread-safe."""

    def __init__(self, folder: Path, name: str, record: Struct, buckets: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._paths = [folder / f"{name}-{bucket:05}" for bucket in range(buckets)]
        self._record = record
        self._buffers = [bytearray() for _ in range(buckets)]
        self._sizes = [0] * buckets
        self._buffered = 0
        self.buckets = buckets

    def restore(self, sizes: Sequence[int]) -> None:
        """Truncate the files to `sizes`, which a flush returned; [] empties them.

        Raises OutboxError if a file is shorter than its size.
        """
        for bucket, path in enumerate(self._paths):
            size = sizes[bucket] if sizes else 0
            with open(path, "ab", opener=private) as file:
                if file.tell() < size:
                    raise OutboxError(
                        f"{path} has {file.tell()} of {size} bytes: the state of this audit is damaged. Delete the "
                        "directory and start the audit again"
                    )
                file.truncate(size)
            self._sizes[bucket] = size

    def append(self, bucket: int, record: bytes) -> None:
        """Add one packed record."""
        self._buffers[bucket] += record
        self._buffered += len(record)
        if self._buffered >= _BUFFERED_BYTES:
            self.flush()

    def flush(self) -> list[int]:
        """Write everything out and return the size of each file in bytes."""
        for bucket, buffer in enumerate(self._buffers):
            if buffer:
                with open(self._paths[bucket], "ab", opener=private) as file:
                    file.write(buffer)
                self._sizes[bucket] += len(buffer)
                self._buffers[bucket] = bytearray()
        self._buffered = 0
        return list(self._sizes)

    def read(self, bucket: int) -> Iterator[tuple[Any, ...]]:
        """Return the records of a bucket, unpacked, in the order in which they were appended."""
        self.flush()
        path = self._paths[bucket]
        if path.exists():
            with path.open("rb") as file:
                while some := file.read(self._record.size * _READ_RECORDS):
                    yield from self._record.iter_unpack(some)
