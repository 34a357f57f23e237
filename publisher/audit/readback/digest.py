"""Defines the records of fixed size that represent an output of the outbox and a record in Kafka. Pure.

16 bytes of BLAKE2b represent an outbox-id with its revision, and 16 more a record's key, value and own headers. Among a billion different
values, the probability that any two have the same digest is below 10^-20.
"""

from collections.abc import Iterable
from enum import IntFlag
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from publisher.protocol.records import Header

NONE = -1
"""Stands for a missing number: the output names no partition or time, the broker set the record's time, its revision or output number
cannot be read, or the outbox does not know its input topic. In `content_of`: the length of None."""

NOT_REPLAYED = bytes(8)


class Mark(IntFlag):
    """The marks of an output. The comparison sets MISSING and REPLAYED, the reader of the outbox the others."""

    DEMANDED = 1
    """The lane's mirror has passed the output's row."""
    PARKED = 2
    """The row is parked: the output counts as not sent."""
    EXPIRED = 4
    """The output was sent to offsets that the topic has deleted."""
    BOUNDARY = 8
    """The topic may have deleted the output: it has deleted a part of its transaction, or the offsets of the transaction are unknown."""
    SKIPPED = 16
    """A resume moved the lane past the output without sending it."""
    REQUEUED_ELSEWHERE = 32
    """The row is parked, and its requeued copy is in a batch that is not audited."""
    TOMBSTONE = 64
    """The output has no value: a compacted topic deletes its record after a while."""
    LATER_UNKNOWN = 128
    """Outputs sent after it may be in batches that are not audited."""
    MISSING = 256
    """The topic should have the output, but does not."""
    REPLAYED = 512
    """A replay sent the output to its topic once more."""


class ExpectedOutput(NamedTuple):
    """One output in the outbox.

    `row`: the number of its row among the lane's rows of the batch, in the order of session keys. `event`: its number in the row. Both
    count from 0. `copies`: the most records that it may have, besides replayed ones: one, plus one for each resume that sent it again. For
    a parked row: how often it was sent before it was parked.
    """

    identity: bytes
    content: bytes
    session_key: bytes
    record_key: bytes
    batch_id: int
    lane: int
    row: int
    event: int
    topic: int
    partition: int
    timestamp_ms: int
    marks: int
    copies: int


class ReceivedOutput(NamedTuple):
    """One record in Kafka. `timestamp_ms`: NONE if the broker set it."""

    identity: bytes
    content: bytes
    topic: int
    partition: int
    offset: int
    timestamp_ms: int
    revision: int
    input_offset: int
    input_partition: int
    """See `partition_number`."""
    replay: bytes
    """8 bytes that represent the replay that sent the record, NOT_REPLAYED if a lane sent it."""
    output: int = NONE
    """The output's number in its session, NONE if the outbox-id has none."""

    @property
    def replayed(self) -> bool:
        """Whether a replay sent the record."""
        return self.replay != NOT_REPLAYED


EXPECTED = Struct("<16s16s8s8sqHiiHiqHB")
RECEIVED = Struct("<16s16sHiqqiqq8si")


def partition_number(topic: int, partition: int) -> int:
    """Return one number for a partition of an input topic."""
    return topic << 32 | partition


def identity_of(outbox_id: bytes, revision: int) -> bytes:
    """Return the digest that represents an outbox-id with its revision."""
    return blake2b(b"%b#%d" % (outbox_id, revision), digest_size=16).digest()


def short_hash(text: bytes, seed: bytes) -> bytes:
    """Return 8 bytes that represent a session key, a record's key or a replay's uuid, for grouping.

    `seed`: random for each audit. Without it, a producer could find two keys that the audit would take for one.
    """
    return blake2b(text, digest_size=8, key=seed).digest()


def content_of(key: bytes | None, value: bytes | None, own_headers: Iterable[Header]) -> bytes:
    """Return the digest that represents key, value and own headers. None differs from empty, and the order of headers counts."""
    parts = [
        b"%d %d " % (NONE if key is None else len(key), NONE if value is None else len(value)),
        key or b"",
        value or b"",
    ]
    for name, content in own_headers:
        text = name.encode()
        data = content.encode() if isinstance(content, str) else content
        parts += [b"%d %d " % (len(text), NONE if data is None else len(data)), text, data or b""]
    return blake2b(b"".join(parts), digest_size=16).digest()


def is_own(header: str) -> bool:
    """Whether a header is certainly the output's own: under no settings, present or past, does the publisher add such a header."""
    return not header.startswith(("outbox-", "ce_")) and header != "content-type"


def bucket_of(end_position: bytes, buckets: int, seed: bytes) -> int:
    """Return the bucket of a session's outputs. `end_position`: `<topic id>/<partition>/<end>`, as in their outbox-ids. `seed`: random for
    each audit, so that nobody can write records that all fall into one bucket.
    """
    return int.from_bytes(blake2b(end_position, digest_size=8, key=seed).digest()) % buckets
