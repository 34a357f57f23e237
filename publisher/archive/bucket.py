"""Reads and writes the files of one outbox's archive in a bucket. Only this module talks to S3.

S3 needs neither rename nor fsync: an object whose write was confirmed is durable, and every reader sees it. pyarrow lacks two functions: a
write that is refused if the object exists (see owner.py), and a way to abort an upload: closing it completes it with the bytes sent so far.
So a large object is sent to `_writing/`, which no query reads, and the server copies it when it is complete. A kill during an upload leaves
parts, which no reader sees and which a rule of the bucket removes (docs/archive.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import BinaryIO, cast
from urllib.parse import urlsplit
from uuid import UUID

from pyarrow import fs

from publisher.archive.files import (
    FileMissingError,
    is_data,
    is_listed,
    require_readable,
    require_writable,
    writing_name,
)
from service.errors import SettingsError

_READ_BYTES = 8 << 20
_CONNECT_S, _SILENCE_S, _ATTEMPTS = 5.0, 60.0, 3

_REMEDIES = {
    "NO_SUCH_BUCKET": "there is no such bucket: make it, or correct [retention] archive",
    "NETWORK_CONNECTION": "the server does not answer: check that it can be reached, and [retention] archive_endpoint",
    "different region": "the bucket is in another region: set [retention] archive_region",
    "HTTP status 301": "the bucket is in another region: set [retention] archive_region",
    "ACCESS_DENIED": "a right is missing: the login must be allowed to list the bucket and to get, put and delete objects below the prefix",
    "INVALID_ACCESS_KEY_ID": "the key is unknown: check AWS_ACCESS_KEY_ID, AWS_PROFILE or the role",
    "SIGNATURE_DOES_NOT_MATCH": "the secret is not the key's: check AWS_SECRET_ACCESS_KEY, AWS_PROFILE",
}
"""{part of pyarrow's message: what to do}."""


class ArchiveBucket:
    """The objects below `outbox=<uuid>/`, in a bucket or below a prefix in it. Credentials are found as AWS SDKs find them."""

    def __init__(self, path: str, region: str | None, endpoint: str | None, outbox_uuid: UUID) -> None:
        """`path`: BUCKET/PREFIX. Raises SettingsError if there is no such bucket, OSError."""
        self.shown = f"s3://{path}/outbox={outbox_uuid}"
        self._own = f"{path}/outbox={outbox_uuid}"
        url = urlsplit(endpoint or "")
        with self._explained():
            self._s3 = fs.S3FileSystem(
                region=region,
                scheme=url.scheme or "https",
                endpoint_override=url.netloc or None,
                # With background writes, bytes that are written faster than they are sent would fill the memory.
                background_writes=False,
                # A small object is one request.
                allow_delayed_open=True,
                connect_timeout=_CONNECT_S,
                request_timeout=_SILENCE_S,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            )
            bucket = self._s3.get_file_info(path.partition("/")[0])
        if bucket.type == fs.FileType.NotFound:
            raise SettingsError(
                f"[retention] archive: there is no bucket {bucket.path!r} at {endpoint or 'AWS'}. Make it, or correct the name"
            )

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write an object. See ArchiveFiles."""
        require_writable(name)
        path = f"{self._own}/{name}"
        if not is_data(name):
            # A small object is sent in one request, after the block has ended.
            text = BytesIO()
            yield text
            with self._explained(), self._s3.open_output_stream(path) as stream:
                stream.write(text.getbuffer())
            return
        sent = f"{self._own}/{writing_name(name)}"
        with self._explained():
            stream = self._s3.open_output_stream(sent)
            try:
                yield cast("BinaryIO", stream)
                stream.close()
                self._s3.copy_file(sent, path)
            except BaseException:
                with suppress(OSError):
                    stream.close()
                with suppress(OSError):
                    self._s3.delete_file(sent)
                raise
            self._s3.delete_file(sent)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read an object in one pass. A second `open` of the name may yield another object. See ArchiveFiles."""
        require_readable(name)
        with self._explained():
            try:
                stream = self._s3.open_input_stream(f"{self._own}/{name}", buffer_size=_READ_BYTES)
            except FileNotFoundError as error:
                raise FileMissingError(f"{self.shown}/{name} is missing") from error
            with stream:
                yield cast("BinaryIO", stream)

    def names(self) -> list[str]:
        """Return the names of the objects that belong to partitions. See ArchiveFiles."""
        with self._explained():
            found = self._s3.get_file_info(fs.FileSelector(self._own, recursive=True, allow_not_found=True))
        names = (each.path.removeprefix(f"{self._own}/") for each in found if each.is_file)
        return sorted(filter(is_listed, names))

    def remove(self, names: list[str]) -> None:
        """Remove objects. See ArchiveFiles."""
        with self._explained():
            for name in names:
                with suppress(FileNotFoundError):
                    self._s3.delete_file(f"{self._own}/{name}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = str(error)
            remedies = [remedy for part, remedy in _REMEDIES.items() if part in text]
            raise OSError(f"{self.shown}: {'. '.join([*remedies[:1], text])}") from error
