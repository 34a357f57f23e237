"""What the broker's own log of transactions says about a contender's producers: begun, committed, aborted."""

import struct
from collections import Counter
from typing import NamedTuple

from benchmarks.peers.outputs import TopicReader

_TOPIC = "__transaction_state"
_PREPARE_COMMIT, _PREPARE_ABORT, _FENCING_ABORT = 2, 3, 7
_COMPLETE_COMMIT, _COMPLETE_ABORT = 4, 5
_ONGOING = 1
_KEY_HEAD = struct.Struct(">hh")
"""TransactionLogKey: its version, and the length of the id that follows."""
_VALUE_HEAD = struct.Struct(">hqhib")
"""TransactionLogValue: version, producer id, producer epoch, time-out in ms, status; what follows is not needed."""


class Transactions(NamedTuple):
    """Of all transactional ids that begin with a prefix, since the broker was started on empty data."""

    ids: int
    committed: int
    aborted: int
    """By the producer, by a successor that fenced it, or by the broker when the time was up."""
    open: int
    """Now."""


def transactions(bootstrap_servers: str, prefix: str = "") -> Transactions:
    """Read the broker's log of them. Compaction leaves its newest segment (100 MiB) alone: a short run is counted whole."""
    counted: Counter[int] = Counter()
    latest: dict[str, int] = {}
    with TopicReader(bootstrap_servers, _TOPIC) as reader:
        for message in reader.messages_to_the_end():
            key, value = message.key(), message.value()
            if key is None or value is None:
                continue
            transactional_id, status = decode(key, value)
            if transactional_id.startswith(prefix):
                counted[status] += 1
                latest[transactional_id] = status
    return Transactions(
        ids=len(latest),
        committed=counted[_COMPLETE_COMMIT],
        aborted=counted[_COMPLETE_ABORT],
        open=sum(
            status in (_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _FENCING_ABORT)
            for status in latest.values()
        ),
    )


def decode(key: bytes, value: bytes) -> tuple[str, int]:
    """Return (transactional id, status) of a record of __transaction_state."""
    _, length = _KEY_HEAD.unpack_from(key)
    begin = _KEY_HEAD.size
    *_, status = _VALUE_HEAD.unpack_from(value)
    return key[begin : begin + length].decode(), status
